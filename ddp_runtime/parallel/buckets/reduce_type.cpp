// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/reduce_type.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "ddp_runtime/optim/abilities.h"
#include "ddp_runtime/optim/master_weights.h"

namespace ddp {

void require_reduce_type(const DataParallelOptions& options) {
  if (!options.reduce_type) return;
  if (*options.reduce_type != torch::kFloat32 && *options.reduce_type != torch::kBFloat16) {
    throw UsageError(
        fmt::format("gradients cannot be reduced in {}: DataParallelOptions::reduce_type must be "
                    "torch::kFloat32 or torch::kBFloat16",
                    c10::toString(*options.reduce_type)));
  }
  if (options.hook) {
    throw UsageError(
        "a communication hook decides itself in which type gradients travel, so it does not go "
        "together with a reduce type (--reduce-type); leave out one of them");
  }
}

torch::ScalarType type_on_the_wire(torch::ScalarType gradients, const ReduceType& reduce_type) {
  return c10::isComplexType(gradients) ? gradients : reduce_type.value_or(gradients);
}

torch::ScalarType type_of_the_sum(torch::ScalarType gradients, const ReduceType& reduce_type) {
  return reduce_type ? c10::promoteTypes(gradients, *reduce_type) : gradients;
}

void widen_gradient(const torch::Tensor& parameter, const ReduceType& reduce_type) {
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = parameter.mutable_grad();
  if (gradient.layout() != torch::kStrided) return;
  gradient = gradient.to(type_of_the_sum(parameter.scalar_type(), reduce_type));
}

void require_masters(torch::optim::Optimizer& optimizer, const ReduceType& reduce_type) {
  if (!reduce_type || optim::masters_of(optim::updater_of(optimizer)) != nullptr) return;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto type = parameter.scalar_type();
      const auto longer = type_of_the_sum(type, reduce_type);
      if (type == longer) continue;
      throw UsageError(fmt::format(
          "gradients of {} parameters are {} with DataParallelOptions::reduce_type {}, but the "
          "optimizer updates these parameters in their own type; call keep_masters() of an "
          "optimizer of ddp::optim, or leave the reduce type out",
          c10::toString(type), c10::toString(longer), c10::toString(*reduce_type)));
    }
  }
}

ReduceType parse_reduce_type(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (name == "fp32") return torch::kFloat32;
  if (name == "bf16") return torch::kBFloat16;
  throw UsageError(fmt::format("--reduce-type must be auto, fp32 or bf16, not '{}'", name));
}

std::string reduce_type_name(const ReduceType& reduce_type) {
  if (!reduce_type) return "auto";
  return *reduce_type == torch::kBFloat16 ? "bf16" : "fp32";
}

}  // namespace ddp
