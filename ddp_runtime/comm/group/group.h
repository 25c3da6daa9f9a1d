// SPDX-License-Identifier: Apache-2.0
// A Group is a set of ranks that communicate. Every rank must call the same collectives in the same
// order. They run one after the other in the background, in that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/comm/group/cut.h"
#include "ddp_runtime/comm/group/flight_recorder.h"
#include "ddp_runtime/comm/group/group_name.h"
#include "ddp_runtime/comm/group/part_sizes.h"
#include "ddp_runtime/comm/group/work.h"

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
  // The rank in the job of a rank of this group. Errors name ranks by it.
  virtual int world_rank(int rank) const noexcept = 0;
  // How errors name this group.
  virtual const GroupName& name() const noexcept = 0;
  // "mpi", "threads" or "self", for messages and reports.
  virtual std::string_view backend() const noexcept = 0;
  // Records the operations of this rank, for the hang analysis of other ranks. The program adds its
  // current phase.
  virtual FlightRecorder& flight_recorder() noexcept = 0;

  // Another group of the same ranks, for collectives that have a common order among themselves but
  // not relative to this group's. In backward, for example, a layer's own collectives fall between
  // gradient buckets, which are sent whenever they are full. The first call with a name is
  // collective, in the same order on all ranks, and blocks; later calls return the same channel.
  // The channel lives as long as this group.
  virtual Group& channel(const std::string& name) = 0;
  // A channel between the same ranks for messages that a thread of the caller sends. Collective, in
  // the same order on all ranks, and blocks; each call opens a new channel. The channel lives as
  // long as this group, and the caller's thread must exit before the group is destroyed.
  virtual PointToPointChannel& point_to_point_channel(const std::string& name) = 0;

  // Divides the ranks into groups, like MPI_Comm_split: ranks with the same `color` form a group,
  // in the order of `key` and then of their ranks here. Returns this rank's group; nullptr if its
  // color is negative. Collective over this group, in the same order on all ranks, and blocks.
  //
  // The part is a group like this one, with its own order of collectives, its own channels and
  // shared memory, and may be split again. A failure of any rank of the job ends it, too. Its
  // collectives may run at the same time as those of this group and of other parts.
  //
  // `name` (of the part's rank 0; at most 48 bytes) appears in errors: "all_reduce #3 of group
  // 'stage 1' (ranks 2 and 3)".
  //
  // The part lives as long as this group, like a channel: no rank can destroy it while another one
  // still needs it. So divide a group once, and not in every step: a rank can be in at most 128
  // parts, counting their channels; on GPUs, each part counts twice. Throws UsageError if there are
  // more or a name is too long.
  virtual Group* split(int color, int key = 0, const std::string& name = {}) = 0;

  // A hash of the collectives that this rank has called here so far: operation, type, length and
  // order. If the hash differs between ranks, they are out of step and may receive the wrong data,
  // even if its length is right.
  virtual std::uint64_t call_history() const = 0;

  // `label` names the data ("bucket 3: fc2.weight ..") in errors; the group stores a copy.

  // Zeroed memory for a buffer that is reduced repeatedly. If ranks share a machine, an all_reduce
  // of this memory (or of a slice of it) reads the other ranks' copies directly. Collective and
  // blocking: all ranks request the same size, in the same order, and use the same slices in the
  // same collective. The memory lives as long as the pointer.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  // Zeroed host memory that the ranks of each machine have in common: what one writes, all of them
  // read. Barriers are up to the caller. nullptr on all ranks if one of them cannot share memory
  // (no room in /dev/shm). Collective and blocking, with the same size on all ranks. The memory
  // lives as long as the pointer of any rank.
  virtual std::shared_ptr<std::byte> allocate_common(std::size_t bytes) = 0;
  // Ranks with the same key are on one machine, and can share memory.
  virtual std::string machine_key() const = 0;

  // Every operation on a buffer holds `keep` until its Work is done, not longer, for memory whose
  // owner may be destroyed by an exception while other ranks still send to it.

  // Reduces in place: every rank gets the element-wise `op` over all ranks.
  virtual Work all_reduce(Buffer data, ReduceOp op, std::string label = {},
                          std::shared_ptr<const void> keep = {}) = 0;
  // Rank r gets the reduced elements [r * output.count, (r + 1) * output.count) of `input`, which
  // is overwritten. input.count == size() * output.count.
  virtual Work reduce_scatter(Buffer input, Buffer output, ReduceOp op, std::string label = {},
                              std::shared_ptr<const void> keep = {}) = 0;
  // output.count == size() * input.count, in rank order.
  virtual Work all_gather(Buffer input, Buffer output, std::string label = {},
                          std::shared_ptr<const void> keep = {}) = 0;
  // The same in place: `data` has one part for each rank, and reduce_scatter reduces rank r's part
  // on rank r. The other parts are undefined afterwards. With host memory, the sums have the bits
  // of all_reduce of the same memory, whatever the cut. all_gather then distributes the parts. If
  // all ranks share a machine and `data` is memory from allocate(), nothing is sent. On GPUs, the
  // two with separate buffers are faster.
  virtual Work reduce_scatter(Buffer data, Cut cut, ReduceOp op, std::string label = {},
                              std::shared_ptr<const void> keep = {}) = 0;
  virtual Work all_gather(Buffer data, Cut cut, std::string label = {},
                          std::shared_ptr<const void> keep = {}) = 0;
  // Puts rank r's `part`, whose size `cut` has, into part r of `output`. The buffers must be in
  // host memory, and not overlap. If all ranks share a machine and `part` is memory from
  // allocate(), nothing is sent, wherever `output` is.
  virtual Work all_gather(Buffer part, Buffer output, Cut cut, std::string label = {},
                          std::shared_ptr<const void> keep = {}) = 0;
  virtual Work broadcast(Buffer data, int root, std::string label = {},
                         std::shared_ptr<const void> keep = {}) = 0;
  // Sends part r of `input` to rank r, and puts the part from rank r into part r of `output`. The
  // parts are one behind the other, as `parts` says. The buffers must not overlap.
  virtual Work all_to_all(Buffer input, Buffer output, PartSizes parts = {}, std::string label = {},
                          std::shared_ptr<const void> keep = {}) = 0;
  // Messages between two ranks arrive in the order in which they were sent. They are otherwise
  // independent of each other and of collectives, so all ranks may send first and then receive. The
  // memory may be used for other operations only after the work is done.
  virtual Work send(Buffer data, int peer, std::string label = {},
                    std::shared_ptr<const void> keep = {}) = 0;
  virtual Work receive(Buffer data, int peer, std::string label = {},
                       std::shared_ptr<const void> keep = {}) = 0;
  virtual Work barrier(std::string label = {}) = 0;

  // Blocking convenience functions for small values, based on the collectives above.

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
