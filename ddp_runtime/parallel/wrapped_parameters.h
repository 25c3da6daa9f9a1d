// The parameters that a replica was made for, and whether its module still has them as they were. A
// hook on each of them averages its gradient: one that was added, unfrozen or converted afterwards
// has none, and would be trained by every rank for itself.
#pragma once

#include <torch/torch.h>

#include <span>
#include <vector>

#include "ddp_runtime/parallel/replica.h"

namespace ddp {

class WrappedParameters {
 public:
  // `may_freeze`: a parameter may stop wanting gradients, since it may be unused anyway. The module
  // must outlive this.
  WrappedParameters(const torch::nn::Module& module, std::vector<NamedTensor> parameters,
                    bool may_freeze);

  std::span<const NamedTensor> all() const noexcept { return parameters_; }

  // Throws RuntimeError if a parameter was frozen, unfrozen, reshaped or converted. Cheap: for
  // every step.
  void require_as_wrapped() const;
  // Throws RuntimeError if the module has a parameter more, less or exchanged. Walks through the
  // module.
  void require_same_list() const;

 private:
  struct Facts {
    bool wants_gradient;
    torch::ScalarType type;
    std::vector<std::int64_t> sizes;
  };

  const torch::nn::Module& module_;
  std::vector<NamedTensor> parameters_;
  std::vector<Facts> facts_;  // at wrapping
  bool may_freeze_;
};

}  // namespace ddp
