// SPDX-License-Identifier: Apache-2.0
// Float32 copies of parameters whose own type is too short to be trained in.
//
// Note [Master weights]
// bfloat16 has 8 significant bits, so an update smaller than about 1/256 of a weight vanishes when
// it is added: training stops early. So the optimizer adds to a float32 copy, the master, and the
// weights that the model computes with are the masters, rounded. Micikevicius et al., "Mixed
// Precision Training" (2018), section 3.1. Gradients have the type of the weights. The state of the
// optimizer is float32.
//
// A master is made from its weights in the first step. Someone may write the weights between steps:
// a clamp, a file, a broadcast, another optimizer. The master takes the weights that differ from
// its own values, rounded, and keeps its precision elsewhere. On a CPU it compares them before each
// use; a step in one pass does so on the way. On a device that would be several kernels for each
// parameter, so there it compares them only if the tensor has a new version or other memory: writes
// through `.data()` leave no trace, and the next step undoes them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace ddp::optim {

class MasterWeights {
 public:
  // Whether the parameter's type, bfloat16 or float16, calls for a master.
  static bool are_for(const torch::Tensor& parameter);

  // What an optimizer updates: the master of a parameter that calls for one, otherwise the
  // parameter itself. Up to date with the weights, of their shape and device.
  torch::Tensor values_of(const torch::Tensor& parameter);
  // The same, but not yet compared with the weights: see UpdateRules::adopt.
  torch::Tensor values_before_comparison(const torch::Tensor& parameter);
  // Rounds the masters of these parameters into them. Ignores parameters without a master.
  void round_into(const std::vector<torch::Tensor>& parameters);
  // The parameter has been given the rounded values of its master, by the replay of a graph.
  void note_rounded(const torch::Tensor& parameter);

 private:
  struct Master {
    torch::Tensor parameter;  // kept, so that its address remains its own
    torch::Tensor values;
    // Of the parameter, when it was last equal to the rounded values.
    std::int64_t version;
    // Kept, so that other memory has another address.
    c10::Storage storage;
  };

  static bool may_have_changed(const Master& master);

  std::unordered_map<const c10::TensorImpl*, Master> masters_;
};

// An optimizer that can train in float32 what the model holds in a shorter type.
class KeepsMasters {
 public:
  // From now on, parameters in bfloat16 or float16 have masters. Call before the first step.
  // Without this, such parameters are updated as torch::optim does, in their own type.
  // torch::save() of the optimizer does not contain the masters; our checkpoints do.
  void keep_masters() {
    if (masters_ == nullptr) masters_ = std::make_unique<MasterWeights>();
  }
  // Null without masters.
  MasterWeights* masters() const noexcept { return masters_.get(); }

 protected:
  KeepsMasters() = default;
  KeepsMasters(KeepsMasters&&) = default;
  KeepsMasters& operator=(KeepsMasters&&) = default;
  ~KeepsMasters() = default;

 private:
  std::unique_ptr<MasterWeights> masters_;
};

}  // namespace ddp::optim
