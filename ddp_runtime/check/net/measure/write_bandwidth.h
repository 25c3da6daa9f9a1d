// RDMA writes between two nodes, measured by perftest's ib_write_bw: the network card's own speed,
// without TCP, MPI or a processor in the way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/measure/tcp.h"

namespace ddp::check {

struct RdmaTool {
  std::string program = "ib_write_bw";
  std::string port = {};              // "mlx5_0:1"; empty: the node has none that is active
  std::optional<int> gid_index = {};  // where the port is Ethernet
  bool runnable() const;              // a port to use, and a program that is there
};

// The first active port below `sys`, or `wanted` as it is, if given.
RdmaTool find_rdma(const std::filesystem::path& sys, const std::string& program,
                   const std::string& wanted);

// The command for one direction; without `host` the end that is written to.
std::vector<std::string> write_bandwidth_command(const RdmaTool& tool, std::uint16_t port,
                                                 std::size_t bytes, const std::string& host);

// Bytes per second, the average that the tool printed; nothing if it printed none, or what is no
// speed. Both units that it knows are understood.
std::optional<double> parse_write_bandwidth(std::string_view output);

// Both directions, the first end's writes first. Throws NetError if it fails or the deadline
// passes; the tool is killed then.
ExchangeResult exchange_by_rdma(const RdmaTool& tool, const ExchangeCommand& command,
                                Deadline deadline);

}  // namespace ddp::check
