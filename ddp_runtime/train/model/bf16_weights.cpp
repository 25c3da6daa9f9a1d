// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/model/bf16_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_set>

#include "base/errors.h"
#include "ddp_runtime/parallel/layers/each_module.h"
#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"
#include "ddp_runtime/train/model/optimizer.h"

namespace ddp::train {

namespace {

// The weight of a layer whose operator autocast runs in bfloat16; null for other modules.
const torch::Tensor* weight_of(const torch::nn::Module& module) {
  using namespace torch::nn;
  if (const auto* layer = module.as<LinearImpl>()) return &layer->weight;
  if (const auto* layer = module.as<Conv1dImpl>()) return &layer->weight;
  if (const auto* layer = module.as<Conv2dImpl>()) return &layer->weight;
  if (const auto* layer = module.as<Conv3dImpl>()) return &layer->weight;
  return nullptr;
}

}  // namespace

void use_bf16_weights(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> weights;
  for_each_module(module, [&](const std::string&, const torch::nn::Module& part) {
    if (const auto* weight = weight_of(part)) weights.insert(weight->unsafeGetTensorImpl());
  });
  // Those that decay are not frozen, and no embeddings.
  for (auto& weight : decay_groups(module).decayed) {
    if (weight.scalar_type() != torch::kFloat32) continue;
    if (!weights.contains(weight.unsafeGetTensorImpl())) continue;
    if (is_without_memory(weight)) {
      throw UsageError(fmt::format(
          "a weight of shape [{}] was divided as float32 when it was built, so it cannot become "
          "bf16; convert each part by use_bf16_weights() before ShardedBuild::add()",
          fmt::join(weight.sizes(), ", ")));
    }
    weight.set_data(weight.detach().to(torch::kBFloat16));
  }
}

}  // namespace ddp::train
