// What decides which schedule is fastest: three numbers about a network and the ranks on it.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::comm {

// As seen by one rank while all ranks communicate at once. See docs/collectives.md.
//
// The defaults are those of no network: with them the chosen all-reduce takes at most 1.75 times as
// long as the fastest one on networks from 1 Gbit/s Ethernet to 400 Gbit/s InfiniBand.
struct NetworkModel {
  double alpha = 10e-6;   // seconds from posting a small message until it has arrived
  double beta = 0.32e-9;  // seconds per byte, each direction for itself
  double gamma = 0.1e-9;  // seconds per byte of adding up
};

// Where a group has its model from. A measurement differs a little each time; where it moves a
// border between schedules, sums are added in another order and end with other bits. So it is not
// the default: two runs of one command, or a run and its continuation, must agree.
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
