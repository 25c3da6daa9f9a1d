// SPDX-License-Identifier: Apache-2.0
// The building block of schedules: blocking exchanges over a Transport that fail as soon as any
// rank has failed or the collective has taken longer than allowed.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/failure/state/wait_timer.h"
#include "ddp_runtime/comm/group/work.h"
#include "ddp_runtime/comm/transport/link_limits.h"
#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::comm {

class Flight;

// A message in two pieces of its rank's memory: `first`, then `second`, which may be empty. Sender
// and receiver must split it at the same byte.
struct SplitMessage {
  std::span<std::byte> first;
  std::span<std::byte> second;

  std::size_t size() const noexcept { return first.size() + second.size(); }
  // The `length` bytes at `offset`, which lie within one of the two pieces.
  std::span<std::byte> part(std::size_t offset, std::size_t length) const {
    return offset < first.size() ? first.subspan(offset, length)
                                 : second.subspan(offset - first.size(), length);
  }
};

class Link {
 public:
  // Called for each piece of a message as it arrives, in order, with its byte offset and length
  // within the message.
  using OnArrival = std::function<void(std::size_t offset, std::size_t length)>;

  Link(Transport& transport, FailureState& failures, LinkLimits limits)
      : transport_(transport),
        limits_(limits),
        wait_timer_(failures, limits.timeout, limits.report_after) {}

  int rank() const noexcept { return transport_.rank(); }
  int size() const noexcept { return transport_.size(); }
  std::size_t segment_bytes() const noexcept { return limits_.segment_bytes; }

  // Sets a function that the thread calls while it waits in this link.
  void set_meanwhile(std::function<void()> meanwhile) { meanwhile_ = std::move(meanwhile); }

  // Starts an operation: `tag` (0 to 32767) marks its messages, `what` names it in errors
  // ("all_reduce #17 (bucket 3)").
  void begin(int tag, std::string what);
  // Ends the operation, so that no wait is in progress.
  void end() noexcept { wait_timer_.moved(); }

  void send(int peer, std::span<const std::byte> data);
  void receive(int peer, std::span<std::byte> data);
  // Sends `out` to one rank while `in` arrives from another. A peer of -1 skips that direction.
  void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in);
  // Exchanges messages in two pieces each.
  void exchange(int to, const SplitMessage& out, int from, const SplitMessage& in);
  // Exchanges messages, but passes incoming data to `on_pair` piece by piece, together with the
  // matching slice of `in`. `scratch` holds only the incoming data that is in flight.
  using OnPair = std::function<void(std::span<std::byte> mine, std::span<std::byte> piece)>;
  void exchange(int to, const SplitMessage& out, int from, const SplitMessage& in,
                std::vector<std::byte>& scratch, const OnPair& on_pair);
  // The two passes of a chain, overlapped; see schedules/chain.h. Partial sums arrive from `before`
  // (-1: this is the first rank). combine(offset, length, incoming) adds this rank's part and
  // stores the sum in `data`, which is then sent to `after` (-1: this is the last rank). The
  // finished pieces return from `after` into `data`, finished(offset, length) is called, and they
  // are passed on to `before`.
  using Combine =
      std::function<void(std::size_t offset, std::size_t length, std::span<std::byte> incoming)>;
  void chain(int before, int after, std::span<std::byte> data, std::vector<std::byte>& scratch,
             const Combine& combine, const OnArrival& finished);
  // Forwards a message: pieces from one rank are passed to the next as they arrive.
  void relay(int from, int to, std::span<std::byte> data);

  // Throws PeerFailure if a rank has failed. Throws BrokenCollective with these ranks (-1: none) if
  // the wait for them has taken too long.
  void check(int to, int from);

 private:
  // One direction of an exchange: no segment of it crosses `cut`.
  struct OneWay {
    int peer = -1;
    std::size_t bytes = 0;
    std::size_t cut = 0;
  };
  Flight flight(const OneWay& way) const;
  template <class Take, class Place, class Arrived>
  void exchange_at(const OneWay& out, const Take& take, const OneWay& in, const Place& place,
                   const Arrived& arrived);
  void grow_slots(std::vector<std::byte>& scratch, const OneWay& in) const;
  std::span<std::byte> slot(std::vector<std::byte>& scratch, const OneWay& in, std::size_t offset,
                            std::size_t length) const;

  std::string report(int to, int from, std::chrono::milliseconds waited) const;

  Transport& transport_;
  LinkLimits limits_;
  WaitTimer wait_timer_;
  std::function<void()> meanwhile_;
  int tag_ = 0;
  std::string what_;
};

}  // namespace ddp::comm
