// SPDX-License-Identifier: Apache-2.0
// A Group is a set of ranks that communicate. Every rank must call the same collectives in the same
// order; they run one after the other, in that order, in the background.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/comm/buffer.h"
#include "ddp_runtime/comm/diagnosis/flight_recorder.h"
#include "ddp_runtime/comm/work.h"

namespace ddp::comm {

struct PointToPointChannel;

class Group {
 public:
  virtual ~Group() = default;
  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  // "mpi", "threads" or "self", for messages and reports.
  virtual std::string_view backend() const noexcept = 0;
  // Records what this rank is doing, for when the other ranks ask why it is missing. The program
  // adds its phase.
  virtual FlightRecorder& flight_recorder() noexcept = 0;

  // Another group of the same ranks, for collectives that are ordered among themselves but not
  // relative to this group's: in backward, a layer's own collectives come between buckets that are
  // sent whenever they happen to be full. The first call with a name is collective, in the same
  // order on all ranks, and blocks; later calls return the same channel. Lives as long as this
  // group.
  virtual Group& channel(const std::string& name) = 0;
  // A channel between the same ranks for the caller's own messages, sent by a thread of the caller.
  // Collective, in the same order on all ranks, and blocks; each call opens a new one. Lives as
  // long as this group, and the caller's thread must exit before it is destroyed.
  virtual PointToPointChannel& point_to_point_channel(const std::string& name) = 0;

  // A hash of the collectives that this rank has called here so far: operation, type, length and
  // order. If it differs between ranks they are out of step, and what they receive may have the
  // right length and still be the wrong data.
  virtual std::uint64_t call_history() const = 0;

  // `label` names the data ("bucket 3: fc2.weight ..") in errors; it is kept.

  // Zeroed memory for a buffer that is reduced again and again: if ranks share a machine, an
  // all_reduce of it (or of a slice of it) reads the other ranks' copies directly. Collective and
  // blocking; all ranks request the same size, in the same order, and use the same slices of it in
  // the same collective. Lives as long as the pointer.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  // In place: every rank gets the element-wise `op` over all ranks. `keep` is held until the
  // operation is over: for memory whose owner may be unwound by an exception while other ranks
  // still send to it.
  virtual Work all_reduce(Buffer data, ReduceOp op, std::string label = {},
                          std::shared_ptr<const void> keep = {}) = 0;
  // Rank r gets the reduced elements [r * output.count, (r + 1) * output.count) of `input`, which
  // is overwritten. input.count == size() * output.count.
  virtual Work reduce_scatter(Buffer input, Buffer output, ReduceOp op, std::string label = {}) = 0;
  // output.count == size() * input.count, in rank order.
  virtual Work all_gather(Buffer input, Buffer output, std::string label = {}) = 0;
  virtual Work broadcast(Buffer data, int root, std::string label = {}) = 0;
  // Messages between two ranks arrive in the order they were sent. They are otherwise independent
  // of each other and of collectives, so all ranks may send first and then receive. The memory is
  // free for other operations once the work is done, not as soon as they are requested.
  virtual Work send(Buffer data, int peer, std::string label = {}) = 0;
  virtual Work receive(Buffer data, int peer, std::string label = {}) = 0;
  virtual Work barrier(std::string label = {}) = 0;

  // Blocking convenience functions for small values, built on the above.

  // Every rank's text, in rank order. Texts may differ in length.
  std::vector<std::string> all_gather_text(std::string_view mine);
  // The root's text on every rank.
  std::string broadcast_text(std::string_view text, int root);
  template <class T>
  T all_reduce_value(T value, ReduceOp op) {
    all_reduce(buffer_of(value), op, "scalar").wait();
    return value;
  }
};

}  // namespace ddp::comm
