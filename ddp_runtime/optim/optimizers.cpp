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

// Into the file, or to the host.
template <class Method>
void move_state_if_elsewhere(typename Method::Optimizer& optimizer, const Means& means) {
  if (!dynamic_cast<KeepsMasters&>(optimizer).take_state_elsewhere()) return;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      auto* const state = find_state<typename Method::State>(optimizer, parameter);
      if (state == nullptr) continue;
      Method::for_each_tensor(*state, [&](torch::Tensor& tensor) {
        tensor = offloaded(tensor, parameter, means.file, means.host);
      });
    }
  }
}

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
torch::Tensor step_of(typename Method::Optimizer& optimizer, const Means& means,
                      const torch::optim::Optimizer::LossClosure& closure,
                      const torch::Tensor& flag, std::deque<FlaggedStep>& unsettled) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  move_state_if_elsewhere<Method>(optimizer, means);
  if (flag.defined()) {
    if (update_unless<Method>(flag, optimizer, means.masters, means.host, unsettled)) return loss;
    unsettled.push_back({flag, {}});
    if (flag.item<float>() != 0) return loss;
  }
  settle_now<Method>(optimizer, unsettled);
  update<Method>(optimizer, means);
  return loss;
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

template <class Method>
std::unique_ptr<PartialStep> partial_step_of(typename Method::Optimizer& optimizer, Means means,
                                             const torch::Tensor& flag,
                                             std::deque<FlaggedStep>& unsettled) {
  if ((means.rules == nullptr && !kHasFusedUpdates) || flag.defined()) return nullptr;
  settle_now<Method>(optimizer, unsettled);
  move_state_if_elsewhere<Method>(optimizer, means);
  auto step = std::make_unique<SplitStep<Method>>(optimizer, std::move(means));
  if (!step->possible()) return nullptr;
  return step;
}

template <class Method>
std::vector<torch::Tensor> capture_step_of(typename Method::Optimizer& optimizer,
                                           MasterWeights* masters, HostState* host,
                                           const torch::Tensor& flag,
                                           const DeviceNumbers& numbers) {
  const torch::NoGradGuard no_grad;
  const auto fuses = [&](torch::DeviceType type) {
    return kHasFusedUpdates && type == numbers.steps.device().type();
  };
  return Step<Method>(optimizer, {.fuses = fuses, .masters = masters, .host = host})
      .capture(flag, numbers);
}

void take_written_weights(MasterWeights* masters, const std::vector<torch::Tensor>& parameters) {
  if (masters == nullptr) return;
  for (const auto& parameter : parameters) masters->values_of(parameter);
}

template <class Method>
void note_replay_of(typename Method::Optimizer& optimizer, MasterWeights* masters,
                    const std::vector<torch::Tensor>& parameters, const torch::Tensor& flag,
                    std::deque<FlaggedStep>& unsettled) {
  FlaggedStep step{flag, {}};
  for (const auto& parameter : parameters) {
    Step<Method>::note_replay(optimizer, masters, parameter);
    step.parts[parameter.unsafeGetTensorImpl()] = {parameter, false};
  }
  if (flag.defined()) unsettled.push_back(std::move(step));
}

// SGD does not count its steps, and the operators do not ask for their number.
template <class Method>
std::int64_t steps_made_by(typename Method::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto* const state = find_state<typename Method::State>(optimizer, parameter);
      if (state != nullptr) return Method::number_of_step(state) - 1;
    }
  }
  return 0;
}

}  // namespace

torch::Tensor SGD::step(LossClosure closure) {
  return step_of<SgdMethod>(*this, means(), closure, std::exchange(next_flag_, {}), unsettled_);
}
void SGD::settle_step(bool skipped) {
  settle_oldest<SgdMethod>(*this, unsettled_, skipped);
}
std::unique_ptr<PartialStep> SGD::begin_partial_step() {
  return partial_step_of<SgdMethod>(*this, means(), next_flag_, unsettled_);
}
void SGD::capture_step(const DeviceNumbers& numbers) {
  captured_.flag = std::exchange(next_flag_, {});
  captured_.parameters =
      capture_step_of<SgdMethod>(*this, masters(), host_state(), captured_.flag, numbers);
}
void SGD::begin_replay() {
  take_written_weights(masters(), captured_.parameters);
}
void SGD::note_replay() {
  note_replay_of<SgdMethod>(*this, masters(), captured_.parameters, captured_.flag, unsettled_);
}
void SGD::save(torch::serialize::OutputArchive& archive) const {
  await_state(*this);
  torch::optim::SGD::save(archive);
}
void SGD::load(torch::serialize::InputArchive& archive) {
  await_state(*this);
  torch::optim::SGD::load(archive);
  note_state_elsewhere();
}
std::int64_t SGD::steps_made() {
  return steps_made_by<SgdMethod>(*this);
}
Means SGD::means() const {
  return {rules(), [this](torch::DeviceType type) { return fuses(type); }, masters(), state_file(),
          host_state()};
}
torch::Tensor Adam::step(LossClosure closure) {
  return step_of<AdamCase>(*this, means(), closure, std::exchange(next_flag_, {}), unsettled_);
}
void Adam::settle_step(bool skipped) {
  settle_oldest<AdamCase>(*this, unsettled_, skipped);
}
std::unique_ptr<PartialStep> Adam::begin_partial_step() {
  return partial_step_of<AdamCase>(*this, means(), next_flag_, unsettled_);
}
void Adam::capture_step(const DeviceNumbers& numbers) {
  captured_.flag = std::exchange(next_flag_, {});
  captured_.parameters =
      capture_step_of<AdamCase>(*this, masters(), host_state(), captured_.flag, numbers);
}
void Adam::begin_replay() {
  take_written_weights(masters(), captured_.parameters);
}
void Adam::note_replay() {
  note_replay_of<AdamCase>(*this, masters(), captured_.parameters, captured_.flag, unsettled_);
}
void Adam::save(torch::serialize::OutputArchive& archive) const {
  await_state(*this);
  torch::optim::Adam::save(archive);
}
void Adam::load(torch::serialize::InputArchive& archive) {
  await_state(*this);
  torch::optim::Adam::load(archive);
  note_state_elsewhere();
}
std::int64_t Adam::steps_made() {
  return steps_made_by<AdamCase>(*this);
}
Means Adam::means() const {
  return {rules(), [this](torch::DeviceType type) { return fuses(type); }, masters(), state_file(),
          host_state()};
}
torch::Tensor AdamW::step(LossClosure closure) {
  return step_of<AdamWCase>(*this, means(), closure, std::exchange(next_flag_, {}), unsettled_);
}
void AdamW::settle_step(bool skipped) {
  settle_oldest<AdamWCase>(*this, unsettled_, skipped);
}
std::unique_ptr<PartialStep> AdamW::begin_partial_step() {
  return partial_step_of<AdamWCase>(*this, means(), next_flag_, unsettled_);
}
void AdamW::capture_step(const DeviceNumbers& numbers) {
  captured_.flag = std::exchange(next_flag_, {});
  captured_.parameters =
      capture_step_of<AdamWCase>(*this, masters(), host_state(), captured_.flag, numbers);
}
void AdamW::begin_replay() {
  take_written_weights(masters(), captured_.parameters);
}
void AdamW::note_replay() {
  note_replay_of<AdamWCase>(*this, masters(), captured_.parameters, captured_.flag, unsettled_);
}
void AdamW::save(torch::serialize::OutputArchive& archive) const {
  await_state(*this);
  torch::optim::AdamW::save(archive);
}
void AdamW::load(torch::serialize::InputArchive& archive) {
  await_state(*this);
  torch::optim::AdamW::load(archive);
  note_state_elsewhere();
}
std::int64_t AdamW::steps_made() {
  return steps_made_by<AdamWCase>(*this);
}
Means AdamW::means() const {
  return {rules(), [this](torch::DeviceType type) { return fuses(type); }, masters(), state_file(),
          host_state()};
}

}  // namespace ddp::optim
