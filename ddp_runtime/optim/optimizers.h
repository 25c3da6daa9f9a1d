// SPDX-License-Identifier: Apache-2.0
// SGD, Adam and AdamW whose step reads and writes memory once.
//
// They are torch::optim's classes with another step(): constructors, parameter
// groups, options, state objects and files are theirs, so they go wherever a
// torch::optim::Optimizer goes, and each can resume from the state of the
// other. The results are bitwise the same; Note [Bits of libtorch] in
// update_rules.h says how.
//
// A parameter is updated in one pass if it, its gradient and its state are
// dense float32 tensors on the CPU with the same order of elements. libtorch's
// own step updates all others on the CPU: sparse gradients, other types,
// AMSGrad. It also updates all parameters if some share memory, or if the rules
// do not give libtorch's bits on this machine (self_check.h).
//
// With PyTorch 2.4 or newer, parameters on a GPU are updated by ATen's fused
// operators, a few kernels for all parameters instead of some for each. Their
// results are those of Python's torch.optim with fused=True. They may differ
// from those of libtorch's step in the last bits.
//
// There, a flag on the GPU can also decide whether a step is skipped, so that the host need not
// wait for it; see skipped_steps.h. The kernels of a step can be a part of a graph; see
// captured_step.h.
//
// keep_masters() trains parameters in bfloat16 or float16 in float32, see master_weights.h. Those
// in bfloat16 are then updated in one pass, too.
//
// If a parameter's gradient is refused with an exception, no parameter that
// fits has been updated.
//
// A step can also be made in parts (partial_step.h), as gradients arrive. It
// cannot if parameters share memory, if one has a sparse gradient, which
// libtorch may refuse, or if no parameter is updated in one pass or by a fused
// operator. Parameters that libtorch's step updates come last.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>

#include "ddp_runtime/optim/captured_step.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/optim/partial_step.h"
#include "ddp_runtime/optim/self_check.h"
#include "ddp_runtime/optim/skipped_steps.h"

namespace ddp::optim {

struct Means;  // how a step may update parameters: see step.h

// `Base`: torch::optim's SGD, Adam or AdamW.
template <class Base>
class Fused : public Base,
              public SkipsSteps,
              public StepsInParts,
              public StepsInGraphs,
              public KeepsMasters {
 public:
  using Base::Base;
  using LossClosure = torch::optim::Optimizer::LossClosure;

  torch::Tensor step(LossClosure closure = nullptr) override;
  void settle_step(bool skipped) override;
  std::unique_ptr<PartialStep> begin_partial_step() override;
  void capture_step(const DeviceNumbers& numbers) override;
  void begin_replay() override;
  void note_replay() override;
  std::int64_t steps_made() override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  // The rules of the one pass; null leaves every parameter to libtorch's step.
  virtual const UpdateRules* rules() const;
  // Whether ATen's fused operators update the parameters on this kind of
  // device.
  virtual bool fuses(torch::DeviceType type) const { return type == torch::kCUDA; }

 private:
  Means means() const;
  void move_state_if_elsewhere();
};

extern template class Fused<torch::optim::SGD>;
extern template class Fused<torch::optim::Adam>;
extern template class Fused<torch::optim::AdamW>;

class SGD : public Fused<torch::optim::SGD> {
 public:
  using Fused::Fused;
};
class Adam : public Fused<torch::optim::Adam> {
 public:
  using Fused::Fused;
};
class AdamW : public Fused<torch::optim::AdamW> {
 public:
  using Fused::Fused;
};

}  // namespace ddp::optim
