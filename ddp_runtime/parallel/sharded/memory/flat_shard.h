// SPDX-License-Identifier: Apache-2.0
// Parameters of one type in flat memory, of which each rank keeps its part: see Note [Shards of
// rows] in shard_plan.h.
//
// Note [Parameters without memory]
// The parameters remain the module's tensors. They share one storage, whose memory comes and goes:
// autograd's saved tensors, views and the optimizer's references refer to the storage, so they find
// the values again when it has memory again. A parameter without memory keeps its shape; what
// reads it gets an error of libtorch ("data is not allocated"), or a null pointer: see ReadCheck.
//
// Note [Common memory]
// The ranks of a machine can have one copy of the parameters, in shared memory, of which each
// updates its part. All of them read it in forward and backward, so there is a barrier before the
// updates and one after them. What else writes to the parameters would do so once for each rank. It
// is found by the version numbers of the parameters, unless it writes through data(), a tensor with
// a number of its own, or through a pointer.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/sharded/memory/whole_memory.h"
#include "ddp_runtime/parallel/sharded/plan/shard_plan.h"

namespace ddp {

class UnitCalls;

class FlatShard {
 public:
  struct Part {
    RowRange rows;            // `array` is an index of arrays()
    std::int64_t offset = 0;  // elements, in this rank's part of the flat memory
    torch::Tensor values;     // a vector, a leaf that requires gradients if its parameter does
  };
  // Whether parameters are always whole, or only between start_gather() and release(), or always
  // whole in memory that the ranks of a machine have in common: see Note [Common memory].
  enum class Kept : std::uint8_t { whole, part, common };

  // Collective. The parameters must have the same values on all ranks, one type and device, and be
  // dense: see require_dense(). Their values move to memory of the group. `calls` is what
  // unit_calls_of() returns for them. All arguments must outlive this object, after which divided
  // parameters have no values. Throws RuntimeError, on all ranks of the group, if
  // there is no room for common memory.
  FlatShard(comm::Group& group, std::vector<torch::Tensor> arrays, Kept kept,
            UnitCalls* calls = nullptr);
  FlatShard(const FlatShard&) = delete;
  FlatShard& operator=(const FlatShard&) = delete;
  ~FlatShard();

  const std::vector<torch::Tensor>& arrays() const noexcept { return arrays_; }
  const std::vector<Part>& parts() const noexcept { return parts_; }
  // Of all ranks' parts.
  const std::vector<std::size_t>& sizes() const noexcept { return part_sizes_; }
  // Whether they can be parts of NCCL's own collectives: on a GPU, and all of one size.
  bool has_equal_parts() const;
  std::int64_t elements() const noexcept { return flat_.elements; }
  torch::TensorOptions options() const { return mine_.options(); }
  std::int64_t first_of_mine() const noexcept { return first_; }
  std::int64_t elements_of_mine() const noexcept { return mine_.numel(); }
  // The window of array `index` on flat memory with this layout.
  torch::Tensor window_of(const torch::Tensor& flat, std::size_t index) const;
  // The elements of `whole`, a tensor with the sizes and strides of the parameter, that a part has:
  // a vector that shares its memory.
  torch::Tensor rows_in(const torch::Tensor& whole, const RowRange& rows) const;
  std::vector<std::size_t> sizes_by_rank(std::size_t array) const;

  // Whether each rank changes its part only.
  bool is_divided() const noexcept { return kept_ != Kept::whole; }
  // These do nothing for parameters that are always whole. Whether they have their values, or will
  // have them after wait(), until which they have no memory.
  bool is_whole() const noexcept { return kept_ != Kept::part || whole_.defined(); }
  // Collective, unless is_whole().
  void start_gather(WholeMemory& memory, const std::string& label);
  void wait();
  // Never throws: if the gather has failed, so does every later collective.
  void release(WholeMemory& memory) noexcept;
  // For common memory: until release(), the parameters have a copy of their own.
  void copy_common(WholeMemory& memory);
  // Until release(), parameters without memory have zeros.
  void pretend();
  // The gather that wait() has waited for, once; nullopt without one since the last call.
  std::optional<comm::Work> take_gather() { return std::exchange(waited_for_, std::nullopt); }

  // Collective for parameters that are always whole: gives the others this rank's part.
  void publish(const std::string& label);
  // Takes this rank's part from the parameters, which are whole and may have been changed.
  void keep_changes();
  // Writes to parameters in common memory are found by their version numbers: whether there were
  // any, to which array, since the last call.
  void note_versions();
  std::optional<std::size_t> changed_array() const;
  bool has_storage_of(const torch::Tensor& tensor) const;
  // Whether the parameters still are in this memory.
  bool owns(std::size_t array) const;

 private:
  void allocate(const torch::TensorOptions& options);
  void fill() const;
  void move_to_memory(UnitCalls* calls);
  void* memory_between_steps() const;
  void point_storage_at(void* memory);
  void make_parts();
  torch::Tensor mine_in(const torch::Tensor& flat) const;

  comm::Group& group_;
  std::vector<torch::Tensor> arrays_;
  std::vector<ArraySize> sizes_;
  ShardPlan plan_;
  const ShardPlan::Flat& flat_;
  std::vector<std::size_t> part_sizes_;
  std::int64_t first_ = 0;  // element of this rank's part
  Kept kept_;
  std::shared_ptr<std::byte> memory_;    // of the group
  torch::Tensor mine_;                   // this rank's part
  torch::Tensor values_;                 // always whole: all of it
  std::vector<std::uint32_t> versions_;  // by array
  c10::Storage storage_;                 // of the parameters
  torch::Tensor whole_;                  // the memory that they have now
  torch::Tensor pretended_;              // see pretend()
  comm::Work gather_;
  std::optional<comm::Work> started_;
  std::optional<comm::Work> waited_for_;
  std::vector<Part> parts_;
};

// Throws UsageError for a tensor that cannot be in a FlatShard. `name` begins the text.
void require_dense(const torch::Tensor& parameter, const std::string& name);

// What the constructor got for the parameter; null if it is in no FlatShard.
UnitCalls* unit_calls_of(const torch::Tensor& parameter);

}  // namespace ddp
