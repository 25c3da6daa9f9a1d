// One exchange between two nodes: latency, then speed in either direction, with every byte checked.
// The same over TCP and MPI, which differ in how bytes travel only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ddp_runtime/check/net/measure/inject.h"

namespace ddp::check {

// How the bytes of one pair travel. Both calls block and throw when it does not work out in time.
class PairLink {
 public:
  PairLink() = default;
  PairLink(const PairLink&) = delete;
  PairLink& operator=(const PairLink&) = delete;
  virtual ~PairLink() = default;
  virtual void send(std::span<std::byte> data) = 0;
  virtual void receive(std::span<std::byte> data) = 0;
  // Bytes this end had to send again so far because they were lost; 0 where the transport does not
  // tell. May go down a little when the receiver's word comes late.
  virtual std::int64_t lost_bytes() const { return 0; }
  // This end, as "eth0 10.0.0.1"; empty where the transport does not tell.
  virtual std::string via() const { return {}; }
};

struct ExchangePlan {
  bool first = false;  // one end begins, the other answers
  // In each direction, after an eighth as a warm-up. A slow link carries less, for about a second:
  // more would tell nothing new.
  std::size_t bytes = 0;
  std::uint64_t seed = 0;  // of the bytes, the same at both ends
  Faults faults;           // of this end
};

struct ExchangeResult {
  double received_per_second = 0;  // bytes, in this end's receiving direction
  double sent_per_second = 0;      // likewise sending; 0 where the receiver measures
  std::int64_t wrong_bytes = 0;    // that arrived changed
  double latency_seconds = 0;      // one way: half the median round trip
  double lost = 0;                 // part of what this end sent, over TCP
  std::string via = {};            // this end: interface and address
};

// How many of `most` bytes are measured at this speed: about a second's worth, or more of a slow
// link, as far as that takes two seconds. So a slow link and a busy machine keep the time limit.
std::size_t amount_for(std::size_t most, double bytes_per_second);

ExchangeResult exchange(PairLink& link, const ExchangePlan& plan);

}  // namespace ddp::check
