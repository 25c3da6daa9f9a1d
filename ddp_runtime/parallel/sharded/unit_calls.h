// SPDX-License-Identifier: Apache-2.0
// What happens around a call of a unit.
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
};

// Those of the model to which the module belongs; null if its parameters are not divided.
UnitCalls* unit_calls_of(const torch::nn::Module& module);

}  // namespace ddp
