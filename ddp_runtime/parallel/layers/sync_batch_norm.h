// SPDX-License-Identifier: Apache-2.0
// Batch normalization over the batch of all ranks, for models with too few samples per rank for
// statistics.
//
//   struct NetImpl : torch::nn::Module {
//     ddp::SyncBatchNorm norm{register_module("norm", ddp::SyncBatchNorm(64))};   // 1d, 2d or 3d
//   ...
//   ddp::connect_sync_batch_norm(*net, world.group());
//   ddp::DistributedDataParallel replica(*net, world.group());
//
// A layer that is not connected is a plain torch::nn::BatchNorm. In C++ a module's forward() is
// called by its type, so a torch::nn::BatchNorm2d inside a model cannot be replaced from outside,
// as PyTorch's convert_sync_batchnorm does. The model must use this type, which works on one rank
// and on many. Parameters and buffers have the same names as in torch::nn::BatchNorm, so
// checkpoints are interchangeable.
//
// Note [Order of collectives in backward]
// A layer's collectives run in the order of the graph, the same on all ranks. At the same time
// another thread sends full buckets of gradients, and which of the two comes first differs between
// ranks. So all of these layers share a separate channel of the group.
#pragma once

#include <torch/torch.h>

#include <string>

#include "ddp_runtime/comm/group/group.h"

namespace ddp {

struct BatchStatistics;

class SyncBatchNormImpl
    : public torch::nn::NormImplBase<2, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& layer) : NormImplBase(layer) {}
  // Creates a layer that is already connected to `group`.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& layer, comm::Group& group)
      : NormImplBase(layer) {
    connect(group);
  }

  // From now on, in training, statistics cover the batches of all ranks: forward() and backward()
  // are collective, and a rank's batch may be smaller than another's, or empty. This call is also
  // collective, in the same order on all ranks. `group` must outlive the layer; `name` is for
  // errors.
  void connect(comm::Group& group, std::string name = "a layer");
  // Whether forward() will be collective.
  bool communicates() const noexcept;

  // `input`: [samples, channels, ...], any floating-point type. Throws UsageError for another shape
  // and, on all ranks, if there are fewer than two values per channel on all ranks together.
  torch::Tensor forward(const torch::Tensor& input);

  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  // Counts the batch and returns how much of the running statistics it replaces.
  double begin_batch();
  void require_variance(const torch::Tensor& input, const BatchStatistics& batch) const;
  torch::Tensor normalize_alone(const torch::Tensor& input, double momentum);
  torch::Tensor normalize_together(const torch::Tensor& input, double momentum);

  comm::Group* channel_ = nullptr;
  std::string name_;
};
TORCH_MODULE(SyncBatchNorm);

// Connects all SyncBatchNorm layers of `module`. Collective. Throws UsageError naming a
// torch::nn::BatchNorm layer if there is one: it would silently use only its own rank's batch. For
// a model that uses both kinds, connect its layers one by one.
void connect_sync_batch_norm(torch::nn::Module& module, comm::Group& group);

// Whether a layer of `module` communicates in forward(), so that all ranks must call it.
bool communicates_in_forward(torch::nn::Module& module);

}  // namespace ddp
