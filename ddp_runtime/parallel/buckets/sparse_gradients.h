// SPDX-License-Identifier: Apache-2.0
// Averages the gradients of embeddings that are sparse: each rank has only the rows that its batch
// has used.
//
// Note [Sparse gradients]
// The rows differ between ranks, so they cannot be summed in a bucket. After the last bucket, the
// ranks tell each other how many rows they have, then collect all rows of all ranks and add up
// those with the same index, in the order of the ranks, so that all get the same bits. All ranks'
// rows are padded to the number of the rank that has most. This takes memory for ranks x rows. If
// the parameter has fewer rows, it is summed as a whole instead, with a flag for each row that a
// rank has, so the memory does not grow with the number of ranks; the result is sparse again.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp {

// The weights of each torch::nn::Embedding and EmbeddingBag in `module` that was built with sparse
// gradients.
std::unordered_set<const c10::TensorImpl*> sparse_weights(const torch::nn::Module& module);

class SparseGradients {
 public:
  // Throws UsageError for several ranks and a parameter that is not on the CPU.
  SparseGradients(comm::Group& group, std::vector<NamedTensor> parameters);

  bool empty() const noexcept { return parameters_.empty(); }
  std::size_t size() const noexcept { return parameters_.size(); }
  void discard();
  // The names of parameters without a gradient on this rank.
  std::vector<std::string> missing() const;
  // Collective. A rank without a gradient contributes no rows; the gradient stays undefined if that
  // holds for all ranks. Throws RuntimeError if a gradient is dense.
  std::vector<profile::CommunicationSpan> reduce();

 private:
  std::vector<std::int64_t> gather_counts();
  // The sum over all ranks of `gradient`, which is coalesced and may be undefined.
  torch::Tensor sum_as_a_whole(const NamedTensor& parameter, const torch::Tensor& gradient,
                               std::vector<profile::CommunicationSpan>& spans);
  void reduce(const NamedTensor& parameter, const std::vector<std::int64_t>& counts,
              std::vector<profile::CommunicationSpan>& spans);

  comm::Group& group_;
  std::vector<NamedTensor> parameters_;
};

}  // namespace ddp
