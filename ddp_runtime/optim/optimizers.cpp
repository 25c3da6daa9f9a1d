// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/optimizers.h"

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ddp_runtime/optim/settle_steps.h"
#include "ddp_runtime/optim/step.h"

namespace ddp::optim {
namespace {

template <class Base>
struct CaseOf;
template <>
struct CaseOf<torch::optim::SGD> {
  using Method = SgdMethod;
  static constexpr Rule kRule = Rule::sgd;
};
template <>
struct CaseOf<torch::optim::Adam> {
  using Method = AdamCase;
  static constexpr Rule kRule = Rule::adam;
};
template <>
struct CaseOf<torch::optim::AdamW> {
  using Method = AdamWCase;
  static constexpr Rule kRule = Rule::adamw;
};
template <class Base>
using MethodOf = typename CaseOf<Base>::Method;

// Lets an optimizer see other parameter groups while this object lives.
// libtorch's step goes over all groups of the optimizer; this is how it updates
// some parameters with the optimizer's own state, and leaves the rest alone,
// even if it throws.
class ReplacedGroups {
 public:
  ReplacedGroups(torch::optim::Optimizer& optimizer, std::vector<OptimizerParamGroup> groups)
      : groups_(optimizer.param_groups()), others_(std::move(groups)) {
    groups_.swap(others_);
  }
  ~ReplacedGroups() { groups_.swap(others_); }
  ReplacedGroups(const ReplacedGroups&) = delete;
  ReplacedGroups& operator=(const ReplacedGroups&) = delete;

 private:
  std::vector<OptimizerParamGroup>& groups_;
  std::vector<OptimizerParamGroup> others_;
};

// While this object lives, the masters are parameters of their own: they have the gradients and the
// state of the parameters whose masters they are, so that libtorch's step can update them.
class LentMasters {
 public:
  LentMasters(torch::optim::Optimizer& optimizer, const std::vector<MasterOf>& masters)
      : optimizer_(optimizer), masters_(masters) {
    for (auto [parameter, values] : masters_) {
      values.mutable_grad() = parameter.grad().to(torch::kFloat32);
      move_state(parameter, values);
    }
  }
  ~LentMasters() {
    for (auto [parameter, values] : masters_) {
      values.mutable_grad().reset();
      move_state(values, parameter);
    }
  }
  LentMasters(const LentMasters&) = delete;
  LentMasters& operator=(const LentMasters&) = delete;

 private:
  void move_state(const torch::Tensor& from, const torch::Tensor& to) {
    auto& states = optimizer_.state();
    const auto found = states.find(torch_compat::state_key(from));
    if (found == states.end()) return;
    auto state = std::move(found->second);
    states.erase(found);
    states[torch_compat::state_key(to)] = std::move(state);
  }

  torch::optim::Optimizer& optimizer_;
  const std::vector<MasterOf>& masters_;
};

// libtorch's step for the parameters that do not fit.
template <class Method>
void update_rest(typename Method::Optimizer& optimizer, Step<Method>& step) {
  using Libtorch [[maybe_unused]] = typename Method::Optimizer;  // Clang 14 misses its uses
  if (!step.has_rest()) return;
  step.bring_state_of_rest();
  {
    const LentMasters lent(optimizer, step.masters_of_rest());
    const ReplacedGroups some(optimizer, step.take_rest());
    optimizer.Libtorch::step(nullptr);
  }
  step.round_rest();
  step.offload_state_of_rest();
}

// libtorch's step comes first: it may refuse a gradient.
template <class Method>
void update(typename Method::Optimizer& optimizer, const Means& means) {
  using Libtorch [[maybe_unused]] = typename Method::Optimizer;  // Clang 14 misses its uses
  if (means.rules == nullptr && !kHasFusedUpdates && means.masters == nullptr &&
      means.file == nullptr && means.host == nullptr) {
    optimizer.Libtorch::step(nullptr);
    return;
  }
  Step<Method> step(optimizer, means);
  if (step.shares_memory()) {
    Step<Method> rest(optimizer,
                      {.masters = means.masters, .file = means.file, .host = means.host});
    update_rest(optimizer, rest);
    return;
  }
  update_rest(optimizer, step);
  step.update_all();
}

// Returns false, without an update, if the device cannot decide alone.
template <class Method>
bool update_unless(const torch::Tensor& flag, typename Method::Optimizer& optimizer,
                   MasterWeights* masters, HostState* host, std::deque<FlaggedStep>& unsettled) {
  if (!kHasFusedUpdates) return false;
  if (second_step_is_unsure<Method>(unsettled)) settle_now<Method>(optimizer, unsettled);
  const auto fuses = [&](torch::DeviceType type) { return type == flag.device().type(); };
  Step<Method> step(optimizer, {.fuses = fuses, .masters = masters, .host = host});
  if (flag.is_cpu() || step.shares_memory() || step.has_rest() ||
      !step.fuses_only_on(flag.device())) {
    return false;
  }
  unsettled.push_back(step.update_by_fused_operators(flag, unsettled));
  return true;
}

template <class Method>
class SplitStep final : public PartialStep {
 public:
  SplitStep(typename Method::Optimizer& optimizer, Means means)
      : optimizer_(optimizer), step_(optimizer, std::move(means)) {}

  bool possible() const { return step_.can_be_split(); }

  void update(std::span<const torch::Tensor> parameters) override {
    const torch::NoGradGuard no_grad;
    step_.update(parameters);
  }
  void finish() override {
    const torch::NoGradGuard no_grad;
    update_rest(optimizer_, step_);
    step_.update_all();
  }

 private:
  typename Method::Optimizer& optimizer_;
  Step<Method> step_;
};

}  // namespace

template <class Base>
const UpdateRules* Fused<Base>::rules() const {
  return rules_in_use(CaseOf<Base>::kRule);
}

template <class Base>
Means Fused<Base>::means() const {
  return {rules(), [this](torch::DeviceType type) { return fuses(type); }, masters(), state_file(),
          host_state()};
}

// Into the file, or to the host.
template <class Base>
void Fused<Base>::move_state_if_elsewhere() {
  using Method = MethodOf<Base>;
  if (!take_state_elsewhere()) return;
  for (const auto& group : this->param_groups()) {
    for (const auto& parameter : group.params()) {
      auto* const state = find_state<typename Method::State>(*this, parameter);
      if (state == nullptr) continue;
      Method::for_each_tensor(*state, [&](torch::Tensor& tensor) {
        tensor = offloaded(tensor, parameter, state_file(), host_state());
      });
    }
  }
}

template <class Base>
torch::Tensor Fused<Base>::step(LossClosure closure) {
  using Method = MethodOf<Base>;
  const torch::Tensor flag = std::exchange(next_flag_, {});
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  move_state_if_elsewhere();
  if (flag.defined()) {
    if (update_unless<Method>(flag, *this, masters(), host_state(), unsettled_)) return loss;
    unsettled_.push_back({flag, {}});
    if (flag.template item<float>() != 0) return loss;
  }
  settle_now<Method>(*this, unsettled_);
  update<Method>(*this, means());
  return loss;
}

template <class Base>
void Fused<Base>::settle_step(bool skipped) {
  settle_oldest<MethodOf<Base>>(*this, unsettled_, skipped);
}

template <class Base>
std::unique_ptr<PartialStep> Fused<Base>::begin_partial_step() {
  using Method = MethodOf<Base>;
  if ((rules() == nullptr && !kHasFusedUpdates) || next_flag_.defined()) return nullptr;
  settle_now<Method>(*this, unsettled_);
  move_state_if_elsewhere();
  auto step = std::make_unique<SplitStep<Method>>(*this, means());
  if (!step->possible()) return nullptr;
  return step;
}

template <class Base>
void Fused<Base>::capture_step(const DeviceNumbers& numbers) {
  const torch::NoGradGuard no_grad;
  captured_.flag = std::exchange(next_flag_, {});
  const auto on_the_device = [&](torch::DeviceType type) {
    return kHasFusedUpdates && type == numbers.steps.device().type();
  };
  Step<MethodOf<Base>> step(*this,
                            {.fuses = on_the_device, .masters = masters(), .host = host_state()});
  captured_.parameters = step.capture(captured_.flag, numbers);
}

template <class Base>
void Fused<Base>::begin_replay() {
  if (masters() == nullptr) return;
  for (const auto& parameter : captured_.parameters) masters()->values_of(parameter);
}

template <class Base>
void Fused<Base>::note_replay() {
  FlaggedStep step{captured_.flag, {}};
  for (const auto& parameter : captured_.parameters) {
    Step<MethodOf<Base>>::note_replay(*this, masters(), parameter);
    step.parts[parameter.unsafeGetTensorImpl()] = {parameter, false};
  }
  if (step.flag.defined()) unsettled_.push_back(std::move(step));
}

// SGD does not count its steps, and the operators do not ask for their number.
template <class Base>
std::int64_t Fused<Base>::steps_made() {
  using Method = MethodOf<Base>;
  for (const auto& group : this->param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto* const state = find_state<typename Method::State>(*this, parameter);
      if (state != nullptr) return Method::number_of_step(state) - 1;
    }
  }
  return 0;
}

template <class Base>
void Fused<Base>::save(torch::serialize::OutputArchive& archive) const {
  await_state(*this);
  Base::save(archive);
}

template <class Base>
void Fused<Base>::load(torch::serialize::InputArchive& archive) {
  await_state(*this);
  Base::load(archive);
  note_state_elsewhere();
}

template class Fused<torch::optim::SGD>;
template class Fused<torch::optim::Adam>;
template class Fused<torch::optim::AdamW>;

}  // namespace ddp::optim
