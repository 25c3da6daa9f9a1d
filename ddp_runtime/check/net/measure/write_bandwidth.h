// SPDX-License-Identifier: Apache-2.0
// Measures RDMA writes between two nodes with perftest's ib_write_bw: the speed of the network card
// itself, without TCP, MPI or the CPU.
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
  std::string port = {};              // "mlx5_0:1"; empty: the node has no active port
  std::optional<int> gid_index = {};  // set if the port is Ethernet
  bool runnable() const;              // whether there is a port and the program is installed
};

// The first active port below `sys`, or `wanted` unchanged if given.
RdmaTool find_rdma(const std::filesystem::path& sys, const std::string& program,
                   const std::string& wanted);

// The command line for one direction; without `host`, for the receiving end.
std::vector<std::string> write_bandwidth_command(const RdmaTool& tool, std::uint16_t port,
                                                 std::size_t bytes, const std::string& host);

// The average that the tool printed, in bytes per second. Returns nullopt if the tool printed no
// speed or an impossible one. Accepts both of the tool's units.
std::optional<double> parse_write_bandwidth(std::string_view output);

// Measures both directions, starting with the writes of the first end. Throws NetError if the
// measurement fails or the deadline passes, in which case the tool is killed.
ExchangeResult exchange_by_rdma(const RdmaTool& tool, const ExchangeCommand& command,
                                Deadline deadline);

}  // namespace ddp::check
