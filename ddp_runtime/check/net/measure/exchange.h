// SPDX-License-Identifier: Apache-2.0
// One exchange between two nodes: latency, then speed in each direction, with every byte verified.
// Only the transport of the bytes differs between TCP and MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ddp_runtime/check/net/measure/inject.h"

namespace ddp::check {

// The transport for the bytes of one pair. Both calls block, and throw if they do not finish in
// time.
class PairLink {
 public:
  PairLink() = default;
  PairLink(const PairLink&) = delete;
  PairLink& operator=(const PairLink&) = delete;
  virtual ~PairLink() = default;
  virtual void send(std::span<std::byte> data) = 0;
  virtual void receive(std::span<std::byte> data) = 0;
  // Bytes this end had to retransmit so far because they were lost; 0 if the transport does not
  // report it. May decrease slightly when a late acknowledgment arrives.
  virtual std::int64_t lost_bytes() const { return 0; }
  // Interface and address of this end, "eth0 10.0.0.1"; empty if the transport does not report
  // them.
  virtual std::string via() const { return {}; }
};

struct ExchangePlan {
  bool first = false;  // this end begins, the other answers
  // Bytes to send in each direction, after a warm-up with an eighth of that. On a slow link, the
  // exchange stops after about one second of data, because more would add no information.
  std::size_t bytes = 0;
  std::uint64_t seed = 0;  // seed of the test data; the same at both ends
  Faults faults;           // faults injected at this end
};

struct ExchangeResult {
  double received_per_second = 0;  // bytes per second that this end received
  double sent_per_second = 0;    // bytes per second that this end sent; 0 if the receiver measures
  std::int64_t wrong_bytes = 0;  // bytes that arrived corrupted
  double latency_seconds = 0;    // one way: half the median round trip
  double lost = 0;               // lost fraction of the data that this end sent over TCP
  std::string via = {};          // interface and address of this end
};

// Returns the number of bytes, at most `most`, to measure at this speed: about one second of data,
// or a fixed minimum if that takes at most two seconds. These limits keep the exchange within its
// deadline on a slow link or a busy machine.
std::size_t amount_for(std::size_t most, double bytes_per_second);

ExchangeResult exchange(PairLink& link, const ExchangePlan& plan);

}  // namespace ddp::check
