// SPDX-License-Identifier: Apache-2.0
// Measures RDMA writes between two nodes with perftest's ib_write_bw: the speed of the network card
// itself, without TCP, MPI or the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/net/measure/own_rdma.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/measure/tcp.h"

namespace ddp::check {

// The command line for one direction over a port of this node; without `host`, for the receiving
// end.
std::vector<std::string> write_bandwidth_command(const std::string& program,
                                                 const OwnRdmaPort& over, std::uint16_t port,
                                                 std::size_t bytes, const std::string& host);

// The average that the tool printed, in bytes per second. Returns nullopt if the tool printed no
// speed or an impossible one. Accepts both of the tool's units.
std::optional<double> parse_write_bandwidth(std::string_view output);

// Measures both directions over this node's port `command.rail`, starting with the writes of the
// first end. Throws NetError if this node has no such port, if the measurement fails, or if the
// deadline passes, in which case the tool is killed.
ExchangeResult exchange_by_rdma(const RdmaTool& tool, const ExchangeCommand& command,
                                Deadline deadline);

}  // namespace ddp::check
