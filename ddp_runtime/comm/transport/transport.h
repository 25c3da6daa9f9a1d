// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages between the ranks of one group, the only network operation that a
// collective schedule needs. Used by one thread, the communication thread of the group, except for
// split().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::comm {

// A message in flight. Valid until poll() has returned true for it once.
using Ticket = std::uint32_t;

// `rank` expected `bytes` bytes from `peer` and received a message of a different length.
[[noreturn]] inline void throw_wrong_length(int rank, int peer, std::size_t bytes) {
  throw BrokenCollective(
      Symptom::wrong_length,
      "rank " + std::to_string(rank) + " expected a message of " + std::to_string(bytes) +
          " bytes from rank " + std::to_string(peer) +
          ", which sent a different length; all ranks must call the same collectives with the same "
          "sizes");
}

class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual std::string_view name() const noexcept = 0;
  // The rank in the job of a rank of this transport, for errors.
  virtual int world_rank(int rank) const noexcept = 0;
  // Ranks with the same key can share memory. Ranks of one process access each other's memory
  // directly.
  virtual std::string node_key() const = 0;
  virtual bool one_process() const noexcept = 0;

  // The memory must stay valid until poll() returns true. A sender of bulk data cannot run far
  // ahead, because some sends complete only after the receiver has posted its receive. Messages
  // from one rank to another with the same tag arrive in order; a message must be received with
  // exactly its length.
  virtual Ticket post_send(std::span<const std::byte> data, int peer, int tag) = 0;
  virtual Ticket post_receive(std::span<std::byte> data, int peer, int tag) = 0;
  // Returns whether the message is complete, and makes progress on all messages. Throws
  // BrokenCollective if a message does not have the length of its receive, RuntimeError on other
  // errors.
  virtual bool poll(Ticket ticket) = 0;
  // Called when no message made progress, with the number of such calls in a row, so that a
  // transport can yield the core to ranks that compute.
  virtual void idle(int calls) = 0;
  // How long idle() would sleep. A caller that can be woken may do so itself.
  virtual std::chrono::microseconds nap_after(int /*calls*/) const noexcept { return {}; }
  // Abandons a message after a failure: its memory may be freed afterwards.
  virtual void abandon(Ticket ticket) noexcept = 0;

  // Returns a transport between `members`, ranks of this one, which get the ranks 0, 1, .. in that
  // order; its messages cannot match any others. Collective over all ranks of this transport, in
  // the same order: each passes the members of its part, to which it belongs, or none, and then
  // returns nullptr. May block for as long as a rank is missing. Another thread may use this
  // transport meanwhile.
  virtual std::unique_ptr<Transport> split(std::span<const int> members) = 0;
};

}  // namespace ddp::comm
