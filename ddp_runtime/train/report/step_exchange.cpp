// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/report/step_exchange.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace ddp::train {
namespace {

using profile::StepCollectives;
using profile::WaitSplit;

// Values that follow the durations in the all_reduce by minimum: the number of durations, once as
// it is and once negated, to detect ranks that disagree on it; and the negated duration of a step.
enum Tail : std::size_t { fewest, most_negated, step_negated, tail_size };

std::shared_ptr<std::vector<float>> durations_of(const std::vector<StepCollectives>& steps,
                                                 double step_seconds) {
  auto values = std::make_shared<std::vector<float>>(StepExchange::kMaxCollectives + tail_size,
                                                     std::numeric_limits<float>::max());
  std::size_t count = 0;
  for (const auto& step : steps) {
    for (const auto& time : step.times) {
      (*values)[count++] = std::chrono::duration<float>(time.end - time.begin).count();
    }
  }
  float* const tail = values->data() + StepExchange::kMaxCollectives;
  tail[fewest] = static_cast<float>(count);
  tail[most_negated] = -static_cast<float>(count);
  tail[step_negated] = -static_cast<float>(step_seconds);
  return values;
}

}  // namespace

void StepExchange::after_step(const StepCollectives& step, double seconds) {
  ++window_.all_steps;
  window_.seconds += seconds;
  if (skip_ > 0) {
    --skip_;
  } else if (window_.collectives + step.times.size() <= kMaxCollectives) {
    window_.collectives += step.times.size();
    window_.steps.push_back(step);
  }
  if (window_.all_steps == length_) end_window();
}

void StepExchange::end_window() {
  take_means();
  take_shortest();
  const auto all_steps = static_cast<double>(std::max<std::int64_t>(window_.all_steps, 1));
  auto values = durations_of(window_.steps, window_.seconds / all_steps);
  auto work = group_.all_reduce(comm::buffer_of(std::span(*values)), comm::ReduceOp::min,
                                "times of collectives", values);
  compared_ = Compared{std::exchange(window_, {}), std::move(values), std::move(work)};
  const double longest = agreed_ && *agreed_ > 0 ? kSeconds / *agreed_ : kMaxSteps;
  const double length = std::min({2.0 * static_cast<double>(length_), longest, double{kMaxSteps}});
  length_ = std::max<std::int64_t>(static_cast<std::int64_t>(length), 1);
}

void StepExchange::take_shortest() {
  if (!compared_) return;
  const auto compared = *std::exchange(compared_, std::nullopt);
  compared.work.wait();
  const float* const tail = compared.values->data() + kMaxCollectives;
  agreed_ = -static_cast<double>(tail[step_negated]);
  const bool alike = tail[fewest] == -tail[most_negated];
  std::vector<WaitSplit> splits;
  auto waits = std::make_shared<std::vector<float>>(kMaxSteps);
  std::span<const float> left(compared.values->data(), compared.window.collectives);
  for (const auto& step : compared.window.steps) {
    if (!alike || step.times.empty()) continue;
    splits.push_back(split_waiting(step, left.first(step.times.size())));
    left = left.subspan(step.times.size());
    (*waits)[splits.size() - 1] = static_cast<float>(splits.back().waiting);
  }
  if (splits.empty()) return;  // on all ranks, since they agree on the counts
  auto work = group_.all_reduce(comm::buffer_of(std::span(*waits)), comm::ReduceOp::sum,
                                "waits of steps", waits);
  weighed_ = Weighed{std::move(splits), std::move(waits), std::move(work)};
}

void StepExchange::take_means() {
  if (!weighed_) return;
  const auto weighed = *std::exchange(weighed_, std::nullopt);
  weighed.work.wait();
  for (std::size_t i = 0; i < weighed.steps.size(); ++i) {
    waits_.add(weighed.steps[i], static_cast<double>((*weighed.values)[i]) / group_.size());
  }
}

void StepExchange::finish() {
  if (window_.all_steps > 0) end_window();
  take_means();
  take_shortest();
  take_means();
}

}  // namespace ddp::train
