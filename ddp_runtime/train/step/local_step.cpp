// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/local_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/train/model/state_offload.h"

namespace ddp::train {
namespace {

using profile::Phase;

// Steps for which the ranks' agreement on the end of the run may take, so that none waits for the
// slowest in each step. Few, because a signal must have an effect soon.
constexpr std::int64_t kMaxAgreementLead = 4;

void refuse_with_local_steps(bool asked_for, const char* what, const char* why) {
  if (!asked_for) return;
  throw UsageError(fmt::format(
      "--local-steps cannot be combined with {}: {}; leave out one of them", what, why));
}

const TrainOptions& require_local_steps(const TrainOptions& o, const Objective& objective) {
  const bool alone = o.local->within == LocalWithin::rank;
  refuse_with_local_steps(o.shard != Shard::none, "--shard",
                          "ranks with different parameters cannot divide an update");
  refuse_with_local_steps(o.ema_decay > 0, "--ema",
                          "an average of the weights needs the same weights on all ranks");
  refuse_with_local_steps(o.param_type != amp::Precision::fp32, "--param-type bf16",
                          "averages of bf16 weights would round away small changes");
  refuse_with_local_steps(offloads(o), "--offload-optimizer",
                          "checkpoints need each rank's own state in memory");
  refuse_with_local_steps(
      alone && o.parallel.hook, "--comm-hook",
      "no gradients are sent between two averages, except with --local-within node");
  refuse_with_local_steps(
      alone && o.parallel.reduce_type.has_value(), "--reduce-type",
      "no gradients are sent between two averages, except with --local-within node");
  refuse_with_local_steps(static_cast<bool>(objective.weight), "weights of batches",
                          "they need all ranks in each step");
  return o;
}

LocalStepsOptions local_options(const TrainOptions& o) {
  auto local = *o.local;
  local.buckets = o.parallel.buckets;
  local.check_parameters_every = o.parallel.check_parameters_every;
  return local;
}

double duration_of(const profile::Interval& time) {
  return std::chrono::duration<double>(time.end - time.begin).count();
}

}  // namespace

LocalStep::LocalStep(const StepTask& task, const TrainOptions& options, StepParts parts)
    : options_(require_local_steps(options, task.objective)),
      recorder_(task.recorder),
      log_(parts.log),
      local_(task.module, task.group, local_options(options)),
      averages_gradients_(&local_.gradient_group()),
      step_({*averages_gradients_, task.module, task.objective, task.recorder}, options_,
            std::move(parts)),
      state_(local_, task.module, step_.optimizer(), step_.scaler()) {}

// A new replica gives the ranks of its group the same values, so those of each rank come after it.
void LocalStep::begin_at(std::int64_t step) {
  local_.restore(step, {});
  take_group();
  const auto note = state_.restore(step);
  if (!note.empty()) notes_.push_back(note);
}

// Between two steps.
void LocalStep::take_group() {
  if (&local_.gradient_group() == averages_gradients_) return;
  averages_gradients_ = &local_.gradient_group();
  step_.average_over(*averages_gradients_);
}

StepOutcome LocalStep::run(data::Prefetcher& batches, double learning_rate, std::int64_t tag) {
  local_.begin_step();
  take_group();
  auto outcome = step_.run(batches, learning_rate, tag);
  average_if_due();
  return outcome;
}

void LocalStep::average_if_due() {
  if (!local_.averages_next()) {
    local_.end_step();
    return;
  }
  const auto begin = profile::Clock::now();
  {
    const auto span = recorder_.measure(Phase::exposed_comm);
    local_.end_step();
  }
  const profile::Interval time{begin, profile::Clock::now()};
  seconds_of_averages_ += duration_of(time);
  const auto bytes = static_cast<std::size_t>(local_.bytes_per_average());
  recorder_.add_communication({{"average of parameters", bytes, time}}, {});
}

// Local steps are skipped by one rank, or one node.
std::vector<SkippedUpdate> LocalStep::take_skipped() {
  auto skipped = step_.take_skipped();
  if (averages_gradients_ == &local_.group()) return skipped;
  if (averages_gradients_->rank() == 0) {
    for (const auto& update : skipped) {
      log_.warning(fmt::format("rank {} skipped the update of its step {}: {}",
                               averages_gradients_->world_rank(0), update.step, update.why));
    }
  }
  return {};
}

std::vector<std::string> LocalStep::take_notes() {
  auto notes = std::exchange(notes_, {});
  std::ranges::move(step_.take_notes(), std::back_inserter(notes));
  return notes;
}

std::int64_t LocalStep::max_lead() const noexcept {
  return std::min(options_.local->every, kMaxAgreementLead);
}

void LocalStep::settle() {
  step_.settle();
  local_.settle();
}

nlohmann::json LocalStep::finish() {
  const auto& o = *options_.local;
  nlohmann::json section = {{"every", o.every},
                            {"from", o.from},
                            {"within", local_within_name(o.within)},
                            {"outer", outer_name(o.outer.kind)},
                            {"averages", local_.averages()},
                            {"bytes_per_average", local_.bytes_per_average()},
                            {"seconds_of_averages", seconds_of_averages_}};
  if (o.outer.kind == Outer::nesterov) {
    section["outer_lr"] = o.outer.learning_rate;
    section["outer_momentum"] = o.outer.momentum;
  }
  return {{"local_steps", section}};
}

}  // namespace ddp::train
