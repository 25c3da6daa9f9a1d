// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/own_stages.h"

#include <fmt/format.h>

#include <utility>

namespace ddp::pipeline {
namespace {

std::vector<NamedTensor> with_stage(std::vector<NamedTensor> tensors, int stage) {
  for (auto& [name, tensor] : tensors) name = fmt::format("stages.{}.{}", stage, name);
  return tensors;
}

}  // namespace

std::vector<NamedTensor> parameters_of(const OwnStage& own) {
  if (!own.stage.module) return {};
  return with_stage(named_parameters(*own.stage.module), own.number);
}

std::vector<NamedTensor> buffers_of(const OwnStage& own) {
  if (!own.stage.module) return {};
  return with_stage(named_buffers(*own.stage.module), own.number);
}

}  // namespace ddp::pipeline
