// Point-to-point messages between the ranks of one group: all that a collective schedule needs
// from a network. Used by one thread, the communication thread of the group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ddp_runtime/comm/peer_failure.h"

namespace ddp::comm {

// A message under way. Valid until poll() has returned true for it once.
using Ticket = std::uint32_t;

// `rank` waited for `bytes` bytes from `peer`, and got a message of another length.
[[noreturn]] inline void throw_wrong_length(int rank, int peer, std::size_t bytes) {
  throw BrokenCollective(
      Symptom::wrong_length,
      "rank " + std::to_string(rank) + " expected a message of " + std::to_string(bytes) +
          " bytes from rank " + std::to_string(peer) +
          ", which sent another length; all ranks must call the same collectives with the same "
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
  // Ranks with the same key can share memory; ranks of one process see each other's as it is.
  virtual std::string node_key() const = 0;
  virtual bool one_process() const noexcept = 0;

  // The memory must stay valid until poll() says so. Who sends bulk cannot run far ahead: some of
  // the sends are not complete before the receiver has posted its receive. Messages from one rank
  // to another with one tag arrive in order; a message must be received with exactly its length.
  virtual Ticket post_send(std::span<const std::byte> data, int peer, int tag) = 0;
  virtual Ticket post_receive(std::span<std::byte> data, int peer, int tag) = 0;
  // Whether the message is complete; makes progress on all of them. Throws BrokenCollective if a
  // message has another length than what is to receive it, RuntimeError otherwise.
  virtual bool poll(Ticket ticket) = 0;
  // Called when nothing moved, with the number of such calls in a row: the place to give the
  // processor to the ranks that compute.
  virtual void idle(int calls) = 0;
  // Gives up what is under way after a failure: the memory may be freed afterwards.
  virtual void abandon(Ticket ticket) noexcept = 0;
};

}  // namespace ddp::comm
