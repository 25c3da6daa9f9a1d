// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/state_fields.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::train {
namespace {

template <class State>
struct StateField {
  const char* name;
  torch::Tensor& (*tensor)(State& state);
};

template <class State>
class FieldsOf final : public StateFields {
 public:
  using Step = std::int64_t& (*)(State& state);

  // `step` is null if the optimizer does not count its steps.
  FieldsOf(std::vector<StateField<State>> fields, Step step)
      : fields_(std::move(fields)), step_(step) {}

  void append(torch::optim::Optimizer& optimizer, const NamedTensor& parameter,
              std::vector<NamedTensor>& out) const override {
    const auto found = optimizer.state().find(torch_compat::state_key(parameter.tensor));
    if (found == optimizer.state().end()) return;
    auto& state = static_cast<State&>(*found->second);
    for (const auto& field : fields_) {
      const auto& tensor = field.tensor(state);
      if (tensor.defined()) out.push_back({parameter.name + "/" + field.name, tensor});
    }
    if (step_ == nullptr) return;
    out.push_back({parameter.name + "/step", torch::scalar_tensor(step_(state), torch::kInt64)});
  }

  bool has(const std::string& field) const override {
    if (field == "step") return step_ != nullptr;
    return std::ranges::any_of(fields_, [&](const auto& known) { return field == known.name; });
  }

  torch::Tensor allocate(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                         const std::string& field, const torch::Tensor& values) const override {
    if (step_ != nullptr && field == "step") return torch::zeros({}, torch::kInt64);
    for (const auto& known : fields_) {
      if (field != known.name) continue;
      return known.tensor(state_of(optimizer, parameter)) = optim::state_like(optimizer, values);
    }
    return {};
  }

  void set_step(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                std::int64_t step) const override {
    if (step_ != nullptr) step_(state_of(optimizer, parameter)) = step;
  }

 private:
  static State& state_of(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
    auto& slot = optimizer.state()[torch_compat::state_key(parameter)];
    if (!slot) slot = std::make_unique<State>();
    return static_cast<State&>(*slot);
  }

  std::vector<StateField<State>> fields_;
  Step step_;
};

template <class State>
std::int64_t& step_in(State& state) {
  return state.step();
}

const StateFields& sgd_fields() {
  using State = torch::optim::SGDParamState;
  static const FieldsOf<State> fields(
      {{"momentum_buffer", [](State& s) -> torch::Tensor& { return s.momentum_buffer(); }}},
      nullptr);
  return fields;
}

// State: AdamParamState or AdamWParamState.
template <class State>
const StateFields& adam_fields() {
  static const FieldsOf<State> fields(
      {{"exp_avg", [](State& s) -> torch::Tensor& { return s.exp_avg(); }},
       {"exp_avg_sq", [](State& s) -> torch::Tensor& { return s.exp_avg_sq(); }},
       // With AMSGrad.
       {"max_exp_avg_sq", [](State& s) -> torch::Tensor& { return s.max_exp_avg_sq(); }}},
      step_in<State>);
  return fields;
}

const StateFields& rmsprop_fields() {
  using State = torch::optim::RMSpropParamState;
  static const FieldsOf<State> fields(
      {{"square_avg", [](State& s) -> torch::Tensor& { return s.square_avg(); }},
       // With momentum.
       {"momentum_buffer", [](State& s) -> torch::Tensor& { return s.momentum_buffer(); }},
       // If it is centered.
       {"grad_avg", [](State& s) -> torch::Tensor& { return s.grad_avg(); }}},
      step_in<State>);
  return fields;
}

const StateFields& adagrad_fields() {
  using State = torch::optim::AdagradParamState;
  static const FieldsOf<State> fields({{"sum", [](State& s) -> torch::Tensor& { return s.sum(); }}},
                                      step_in<State>);
  return fields;
}

template <class Optimizer>
bool is_a(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const Optimizer*>(&optimizer) != nullptr;
}

}  // namespace

const StateFields* state_fields_of(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (is_a<SGD>(optimizer)) return &sgd_fields();
  if (is_a<AdamW>(optimizer)) return &adam_fields<AdamWParamState>();
  if (is_a<Adam>(optimizer)) return &adam_fields<AdamParamState>();
  if (is_a<RMSprop>(optimizer)) return &rmsprop_fields();
  if (is_a<Adagrad>(optimizer)) return &adagrad_fields();
  return nullptr;
}

}  // namespace ddp::train
