// A Group is a set of ranks that communicate. Every rank must call the same collectives in the
// same order; they run one after the other, in that order, behind the caller's back.
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
#include "ddp_runtime/comm/point_to_point_channel.h"
#include "ddp_runtime/comm/work.h"

namespace ddp::comm {

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
  // What this rank does, for when the others ask why it does not come. The program adds its phase.
  virtual FlightRecorder& flight_recorder() noexcept = 0;

  // Another group of the same ranks, for collectives that have an order among themselves but none
  // among this group's: in backward, a layer's own come between buckets that are sent when they
  // happen to be full. The first call with a name is collective, in the same order on all ranks,
  // and blocks; later ones give the same channel. Lives as long as this group.
  virtual Group& channel(const std::string& name) = 0;
  // A way between the same ranks for messages of the caller's own, sent by a thread of the caller's
  // own. Collective, in the same order on all ranks, and blocks; each call opens another one. Lives
  // as long as this group, and the caller's thread must end before it.
  virtual PointToPointChannel& point_to_point_channel(const std::string& name) = 0;

  // A hash of the collectives that this rank has called here so far: what, of which type, how long,
  // in which order. Where it differs between ranks they no longer do the same, and what they
  // receive may be of the right length and still be something else.
  virtual std::uint64_t call_history() const = 0;

  // `label` names what is communicated ("bucket 3: fc2.weight ..") in errors; it is kept.

  // Zeroed memory for a buffer that is reduced again and again: where ranks share a machine, an
  // all_reduce of it (or of a part of it) reads the others' copies where they lie. Collective and
  // blocking; all ranks ask for the same size, in the same order, and use the same parts of it in
  // the same collective. Lives as long as the pointer.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  // In place: every rank ends with the element-wise `op` over all ranks. `keep` is held until the
  // operation is over: for memory whose owner may be unwound by an exception while others still
  // send to it.
  virtual Work all_reduce(Buffer data, ReduceOp op, std::string label = {},
                          std::shared_ptr<const void> keep = {}) = 0;
  // Rank r ends with the reduced elements [r * output.count, (r + 1) * output.count) of `input`,
  // which is overwritten. input.count == size() * output.count.
  virtual Work reduce_scatter(Buffer input, Buffer output, ReduceOp op, std::string label = {}) = 0;
  // output.count == size() * input.count, in rank order.
  virtual Work all_gather(Buffer input, Buffer output, std::string label = {}) = 0;
  virtual Work broadcast(Buffer data, int root, std::string label = {}) = 0;
  // Messages between two ranks arrive in the order they were sent. They wait neither for one
  // another otherwise nor for collectives, so ranks may all send first and then receive; and the
  // memory is free for other operations once the work is done, not when those are asked for.
  virtual Work send(Buffer data, int peer, std::string label = {}) = 0;
  virtual Work receive(Buffer data, int peer, std::string label = {}) = 0;
  virtual Work barrier(std::string label = {}) = 0;

  // Blocking conveniences for small values, built on the above.

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
