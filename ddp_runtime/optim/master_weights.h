// SPDX-License-Identifier: Apache-2.0
// Float32 copies of parameters whose own type is too short to be trained in.
//
// Note [Master weights]
// bfloat16 has 8 significant bits, so an update smaller than about 1/256 of a weight vanishes when
// it is added: training stops early. So the optimizer adds to a float32 copy, the master, and the
// weights that the model computes with are the masters, rounded. Micikevicius et al., "Mixed
// Precision Training" (2018), section 3.1. Gradients have the type of the weights, or float32. The
// state of the optimizer is float32.
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
#include <utility>
#include <vector>

#include "ddp_runtime/optim/offload/host_state.h"
#include "ddp_runtime/optim/offload/state_file.h"

namespace ddp::optim {

class MasterWeights {
 public:
  // `file`: where masters of parameters on the CPU are, or null for ordinary memory. Must outlive
  // this object.
  explicit MasterWeights(const StateFile* file = nullptr) : file_(file) {}

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

  const StateFile* file_;
  std::unordered_map<const c10::TensorImpl*, Master> masters_;
};

// An optimizer that can train in float32 what the model holds in a shorter type, and that can have
// what it keeps for each parameter in a file.
class KeepsMasters {
 public:
  // From now on, parameters in bfloat16 or float16 have masters. Call before the first step.
  // Without this, such parameters are updated as torch::optim does, in their own type.
  // torch::save() of the optimizer does not contain the masters; our checkpoints do.
  void keep_masters() {
    if (masters_ == nullptr) masters_ = std::make_unique<MasterWeights>(file_.get());
  }
  // Null without masters.
  MasterWeights* masters() const noexcept { return masters_.get(); }

  // From now on, the state of parameters on the CPU and their masters are in this file: see Note
  // [State in a file]. Call before the first step, or after a file was loaded.
  void offload_state(std::unique_ptr<StateFile> file) {
    file_ = std::move(file);
    if (masters_ != nullptr) masters_ = std::make_unique<MasterWeights>(file_.get());
    has_state_elsewhere_ = true;
  }
  // The same for parameters on a GPU, whose state is on the host then: see Note [State on the
  // host].
  void offload_state(std::unique_ptr<HostState> host) {
    host_ = std::move(host);
    has_state_elsewhere_ = true;
  }
  // Null if the state is where its parameters are.
  StateFile* state_file() const noexcept { return file_.get(); }
  HostState* host_state() const noexcept { return host_.get(); }
  // State may have been made, or read from a file of libtorch, where it is not offloaded to.
  void note_state_elsewhere() noexcept { has_state_elsewhere_ = true; }
  // Once after each of these: whether the next step must move it.
  bool take_state_elsewhere() noexcept { return std::exchange(has_state_elsewhere_, false); }

 protected:
  KeepsMasters() = default;
  KeepsMasters(KeepsMasters&&) = default;
  KeepsMasters& operator=(KeepsMasters&&) = default;
  ~KeepsMasters() = default;

 private:
  std::unique_ptr<StateFile> file_;
  std::unique_ptr<HostState> host_;
  std::unique_ptr<MasterWeights> masters_;
  bool has_state_elsewhere_ = false;
};

// Null if the optimizer keeps none.
MasterWeights* masters_of(const torch::optim::Optimizer& optimizer);
// New state of a parameter, zeros like `values`, where this optimizer keeps it.
torch::Tensor state_like(const torch::optim::Optimizer& optimizer, const torch::Tensor& values);
// Waits until the tensors of the state have the values of all steps, if steps write them without
// waiting.
void await_state(const torch::optim::Optimizer& optimizer);

}  // namespace ddp::optim
