// SPDX-License-Identifier: Apache-2.0
// The states of one or more optimizers by parameter name. Each parameter belongs to at most one of
// them, so its name tells whose state an array is.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ddp_runtime/train/state/optimizer_state.h"

namespace ddp::train {

// Optimizers whose state each rank has as a whole, or divided ones.
enum class Held { whole, divided };

// The functions are those of OptimizerState.
class OptimizerStates {
 public:
  // The optimizers and parameters must outlive this object. Throws UsageError if two optimizers
  // update one parameter, or if there is no optimizer.
  OptimizerStates(const std::vector<torch::optim::Optimizer*>& optimizers,
                  const std::vector<NamedTensor>& parameters,
                  const std::optional<Resident>& resident = {});

  void require_known() const;
  bool any_divided() const noexcept;
  std::vector<StateArray> arrays() const;
  // Of those names whose optimizers are `held` like this; the state of the others stays.
  std::vector<StateArray> allocate(std::span<const std::string> names, Held held);
  void commit(std::span<const StateArray> filled);

 private:
  std::size_t owner_of(const std::string& name) const;

  std::vector<std::unique_ptr<OptimizerState>> states_;
  std::unordered_map<std::string, std::size_t> owners_;  // by parameter, if there are several
};

}  // namespace ddp::train
