// SPDX-License-Identifier: Apache-2.0
// What happens around a call of a unit, and around forward passes outside of steps.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace ddp {

class UnitCalls {
 public:
  virtual ~UnitCalls() = default;
  UnitCalls() = default;
  UnitCalls(const UnitCalls&) = delete;
  UnitCalls& operator=(const UnitCalls&) = delete;

  // The number of the unit that is this module; nullopt if it is none.
  virtual std::optional<std::size_t> find_unit(const torch::nn::Module& module) const = 0;
  // Collective. Returns when the unit's parameters are whole, which they stay until leave().
  virtual void enter(std::size_t unit) = 0;
  // Prepares backward through the outputs of the call.
  virtual void expect_backward(std::size_t unit, const std::vector<torch::Tensor>& outputs) = 0;
  virtual void leave(std::size_t unit) noexcept = 0;

  // An operator is about to read a parameter that has no memory. Gives it some, and has the next
  // collective call of this interface throw.
  virtual void note_read(const torch::Tensor& parameter, const char* reader) = 0;

  // See ForwardPasses.
  virtual void begin_passes() = 0;
  virtual void begin_pass() = 0;
  virtual void end_pass() = 0;
  virtual void end_passes() noexcept = 0;
};

// Those of the model to which the module belongs; null if its parameters are not divided.
UnitCalls* unit_calls_of(const torch::nn::Module& module);

// During a call of a unit.
class EnteredUnit {
 public:
  EnteredUnit(UnitCalls& calls, std::size_t unit);
  EnteredUnit(const EnteredUnit&) = delete;
  EnteredUnit& operator=(const EnteredUnit&) = delete;
  ~EnteredUnit();

 private:
  UnitCalls& calls_;
  std::size_t unit_;
  bool keeps_casts_;
};

// Forward passes of a model between two steps, as in an evaluation. Does nothing for a model whose
// parameters are not divided. Collective: all ranks make the same number of passes. One that has no
// batch left makes begin() and end() without a forward pass in between.
//
//   ddp::ForwardPasses passes(*net);
//   for (int i = 0; i < most_batches_of_any_rank; ++i) {
//     passes.begin();
//     if (i < my_batches) add_up(net->forward(batch(i)));
//     passes.end();
//   }
class ForwardPasses {
 public:
  explicit ForwardPasses(const torch::nn::Module& module);
  ForwardPasses(const ForwardPasses&) = delete;
  ForwardPasses& operator=(const ForwardPasses&) = delete;
  ~ForwardPasses();

  void begin();
  void end();

 private:
  UnitCalls* calls_;
};

}  // namespace ddp
