// SPDX-License-Identifier: Apache-2.0
// The three numbers about a network and its ranks that decide which schedule is fastest.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::comm {

// As seen by one rank while all ranks communicate at once. See docs/collectives.md.
//
// The defaults do not describe any particular network: with them the chosen all-reduce takes at
// most 1.75 times as long as the fastest one on networks from 1 Gbit/s Ethernet to 400 Gbit/s
// InfiniBand.
struct NetworkModel {
  double alpha = 10e-6;   // seconds from posting a small message until it has arrived
  double beta = 0.32e-9;  // seconds per byte, in each direction
  double gamma = 0.1e-9;  // seconds per byte of addition
};

// Where a group's model comes from. A measurement varies a little each time; if that moves a
// boundary between schedules, sums are added in another order and differ in their last bits. So
// measuring is not the default: two runs of one command, or a run and its continuation, must agree.
struct NetworkSource {
  enum class Kind : std::uint8_t { assumed, measured, given };
  Kind kind = Kind::assumed;
  NetworkModel model;  // unless measured
};

const char* to_string(NetworkSource::Kind kind) noexcept;

// "assume", "measure", or "LATENCY:BANDWIDTH", microseconds and Gbit/s of one rank, both positive:
// "30:100". Throws UsageError.
NetworkSource parse_network(const std::string& text);

}  // namespace ddp::comm
