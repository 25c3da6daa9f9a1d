// SPDX-License-Identifier: Apache-2.0
// Data parallelism within a pipeline: the ranks that run the same stages on different data average
// their gradients.
//
// Gradients of a stage are complete after its backward of the last micro-batch. Buckets are sent
// from then on, while this rank and others still work on other stages and micro-batches. All ranks
// with the same stages have the same schedule, so they send the same buckets in the same order.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/options.h"
#include "ddp_runtime/pipeline/own_stages.h"

namespace ddp {
class Reducer;
}  // namespace ddp

namespace ddp::pipeline {

class StageReplicas {
 public:
  // Collective over `group`, the ranks with the same stages; null if there is only one. All take
  // the values of its rank 0. `stages` must outlive this object.
  StageReplicas(comm::Group* group, const std::vector<OwnStage>& stages,
                const DataParallelOptions& options);
  StageReplicas(const StageReplicas&) = delete;
  StageReplicas& operator=(const StageReplicas&) = delete;
  ~StageReplicas();

  // Collective. Discards the gradients of the previous step.
  void begin_step(int micro_batches);
  // Whether begin_last_backward() must know the output that backward begins with.
  bool follows_graph() const noexcept;
  // Before backward of the stage at `index` in `stages` on the last micro-batch.
  void begin_last_backward(std::size_t index, const torch::Tensor& output);
  // Instead, if backward is split: after all gradients of the stage on all micro-batches.
  void end_split_backward(std::size_t index);
  // After all backwards: returns when all gradients are averaged.
  void finish();

 private:
  comm::Group* group_;
  const std::vector<OwnStage>& stages_;
  DataParallelOptions options_;
  std::vector<NamedTensor> buffers_;
  std::vector<std::unique_ptr<Reducer>> reducers_;  // of the stages; none with one rank
};

}  // namespace ddp::pipeline
