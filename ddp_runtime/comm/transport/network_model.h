// SPDX-License-Identifier: Apache-2.0
// The three parameters of a network and its ranks that decide which schedule is fastest.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::comm {

// The parameters apply to one rank while all ranks communicate at the same time. See
// docs/collectives.md.
//
// The defaults do not describe any particular network: with them the chosen all-reduce takes at
// most 1.75 times as long as the fastest one on networks from 1 Gbit/s Ethernet to 400 Gbit/s
// InfiniBand.
struct NetworkModel {
  double alpha = 10e-6;   // seconds from posting a small message until it arrives
  double beta = 0.32e-9;  // seconds per byte, in each direction
  double gamma = 0.1e-9;  // seconds per byte of addition
};

// The source of a group's model. Measurements vary slightly. If that moves a boundary between
// schedules, sums are added in a different order and differ in their last bits. Two runs of the
// same command, or a run and its continuation, must agree, so measuring is not the default.
struct NetworkSource {
  enum class Kind : std::uint8_t { assumed, measured, given };
  Kind kind = Kind::assumed;
  NetworkModel model;  // used unless the network is measured
};

const char* to_string(NetworkSource::Kind kind) noexcept;

// Parses "assume", "measure", or "LATENCY:BANDWIDTH" in microseconds and Gbit/s of one rank, both
// positive, such as "30:100". Throws UsageError.
NetworkSource parse_network(const std::string& text);

}  // namespace ddp::comm
