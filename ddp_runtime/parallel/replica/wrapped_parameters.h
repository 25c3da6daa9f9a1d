// SPDX-License-Identifier: Apache-2.0
// The parameters that a replica was created for, and a check that its module still has them
// unchanged. Hooks on the parameters average their gradients: a parameter that was added, unfrozen
// or converted later has no hook, and each rank would train it separately.
#pragma once

#include <torch/torch.h>

#include <span>
#include <vector>

#include "ddp_runtime/parallel/replica/ignored_tensors.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp {

class WrappedParameters {
 public:
  // `may_freeze`: a parameter may stop requiring gradients, because it may be unused anyway. The
  // module and `ignored` must outlive this object.
  WrappedParameters(const torch::nn::Module& module, const IgnoredTensors& ignored,
                    std::vector<NamedTensor> parameters, bool may_freeze);

  std::span<const NamedTensor> all() const noexcept { return parameters_; }

  // Throws RuntimeError if a parameter was frozen, unfrozen, reshaped, converted or moved to
  // another device. Cheap enough for every step.
  void require_as_wrapped() const;
  // Throws RuntimeError if a parameter of the module was added, removed or exchanged. Walks through
  // the module.
  void require_same_list() const;

 private:
  struct Facts {
    bool wants_gradient;
    torch::ScalarType type;
    torch::Device device;
    std::vector<std::int64_t> sizes;
  };

  const torch::nn::Module& module_;
  const IgnoredTensors& ignored_;
  std::vector<NamedTensor> parameters_;
  std::vector<Facts> facts_;  // at the time of wrapping
  bool may_freeze_;
};

}  // namespace ddp
