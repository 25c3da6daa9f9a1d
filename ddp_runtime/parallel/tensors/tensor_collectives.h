// SPDX-License-Identifier: Apache-2.0
// Collectives on tensors of any element type and any strides; docs/collectives.md compares them
// with torch.distributed. A start_ function returns at once, and its operation runs in the
// background; the function without start_ waits for it.
//
// Tensors on a device need a group with GPUs (WorldOptions::gpus). The operation begins after the
// work that is on this thread's current stream when it is called.
//
// No function records anything for autograd, which notices, however, that a tensor that it saved
// for backward was overwritten.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp {

struct CollectiveOptions {
  std::string label = {};  // names the data in errors
  // Compares the types and shapes of all ranks' tensors first, by an all-reduce of 16 bytes, and
  // throws UsageError on all ranks if they differ. Without it, tensors of different size are only
  // found because the collective fails, and those of the same size not at all. Must be the same on
  // all ranks. Not for messages.
  bool compare_shapes = true;
};

// An operation in the background. It keeps the tensors until it is done, even if this object is
// destroyed before.
class [[nodiscard]] TensorWork {
 public:
  TensorWork() = default;  // done
  TensorWork(TensorWork&&) noexcept = default;
  TensorWork& operator=(TensorWork&&) noexcept = default;
  ~TensorWork() = default;

  // Blocks until the result is in the tensors; for tensors on a device, makes this thread's current
  // stream, which must be the one of the call, wait for it. The result of a tensor with strides
  // appears only here. Throws PeerFailure if another rank has failed, UsageError if the ranks'
  // tensors differ, RuntimeError otherwise. Later calls return at once.
  void wait();
  // Whether the data has been exchanged, successfully or not. Does not block.
  bool done() const;

  class State;
  explicit TensorWork(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// All throw UsageError at the call for an argument that is wrong on this rank alone.

// Reduces in place. The sum of truth values is whether any is true. Complex numbers have only a
// sum.
TensorWork start_all_reduce(comm::Group& group, const torch::Tensor& tensor,
                            comm::ReduceOp op = comm::ReduceOp::sum,
                            const CollectiveOptions& options = {});
void all_reduce(comm::Group& group, const torch::Tensor& tensor,
                comm::ReduceOp op = comm::ReduceOp::sum, const CollectiveOptions& options = {});

// `root` is a rank of the group.
TensorWork start_broadcast(comm::Group& group, const torch::Tensor& tensor, int root,
                           const CollectiveOptions& options = {});
void broadcast(comm::Group& group, const torch::Tensor& tensor, int root,
               const CollectiveOptions& options = {});

// `output` has the elements of all ranks' inputs, in rank order: its shape is [ranks, ...] or
// [ranks x n, ...] for inputs of shape [n, ...].
TensorWork start_all_gather(comm::Group& group, const torch::Tensor& output,
                            const torch::Tensor& input, const CollectiveOptions& options = {});
void all_gather(comm::Group& group, const torch::Tensor& output, const torch::Tensor& input,
                const CollectiveOptions& options = {});
// Returns each rank's tensor.
std::vector<torch::Tensor> all_gather(comm::Group& group, const torch::Tensor& input,
                                      const CollectiveOptions& options = {});

// `output` of rank r is part r of the reduced input, which has the shapes of all_gather's output.
// Copies the input, and does not change it.
TensorWork start_reduce_scatter(comm::Group& group, const torch::Tensor& output,
                                const torch::Tensor& input, comm::ReduceOp op = comm::ReduceOp::sum,
                                const CollectiveOptions& options = {});
void reduce_scatter(comm::Group& group, const torch::Tensor& output, const torch::Tensor& input,
                    comm::ReduceOp op = comm::ReduceOp::sum, const CollectiveOptions& options = {});

// How many rows (of dimension 0) go to each rank, and come from each; both are empty if all parts
// are equal.
struct RowsPerRank {
  std::vector<std::int64_t> input = {};
  std::vector<std::int64_t> output = {};
};

// Sends part r of the input's rows to rank r, and puts the rows from rank r into part r of the
// output.
TensorWork start_all_to_all(comm::Group& group, const torch::Tensor& output,
                            const torch::Tensor& input, const RowsPerRank& rows = {},
                            const CollectiveOptions& options = {});
void all_to_all(comm::Group& group, const torch::Tensor& output, const torch::Tensor& input,
                const RowsPerRank& rows = {}, const CollectiveOptions& options = {});

// Messages: all ranks may send first and then receive. The receiver's tensor must have as many
// bytes as the sender's. `peer` is another rank of the group.
TensorWork start_send(comm::Group& group, const torch::Tensor& tensor, int peer,
                      const CollectiveOptions& options = {});
void send(comm::Group& group, const torch::Tensor& tensor, int peer,
          const CollectiveOptions& options = {});
TensorWork start_receive(comm::Group& group, const torch::Tensor& tensor, int peer,
                         const CollectiveOptions& options = {});
void receive(comm::Group& group, const torch::Tensor& tensor, int peer,
             const CollectiveOptions& options = {});

}  // namespace ddp
