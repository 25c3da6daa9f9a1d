// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/run_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace ddp::train {
namespace {

constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

std::int64_t sum_of(std::int64_t a, std::int64_t b) noexcept {
  return a > kEndless - b ? kEndless : a + b;
}

std::int64_t product_of(std::int64_t a, std::int64_t b) noexcept {
  return b > 0 && a > kEndless / b ? kEndless : a * b;
}

// A run that resumes with less data may have consumed more samples than there are.
std::int64_t left_in_epoch(const EpochSize& size, const Reached& reached) noexcept {
  return std::max<std::int64_t>(0, size.samples - reached.consumed) / size.global_batch;
}

// Whether a run of this batch from its beginning ends with requested.steps.
bool steps_end_it(const RequestedLength& requested, const EpochSize& size) noexcept {
  if (requested.steps == 0) return false;
  return requested.epochs == 0 ||
         requested.steps < product_of(requested.epochs, size.samples / size.global_batch);
}

}  // namespace

std::int64_t epochs_of_run(const RequestedLength& requested, const EpochSize& size,
                           const Reached& reached) noexcept {
  if (requested.epochs > 0 || requested.steps == 0) {
    return std::max<std::int64_t>(1, requested.epochs);
  }
  const std::int64_t in_an_epoch = size.samples / size.global_batch;
  const std::int64_t beyond =
      std::max<std::int64_t>(0, requested.steps - reached.step - left_in_epoch(size, reached));
  const std::int64_t further = beyond / in_an_epoch + (beyond % in_an_epoch > 0 ? 1 : 0);
  return sum_of(sum_of(reached.epoch, 1), further);
}

std::int64_t planned_steps(const RequestedLength& requested, const EpochSize& size,
                           const Reached& reached) noexcept {
  const std::int64_t epochs_left = requested.epochs - reached.epoch;
  if (epochs_left <= 0) return reached.step;
  const std::int64_t later = product_of(epochs_left - 1, size.samples / size.global_batch);
  const std::int64_t planned = sum_of(reached.step, sum_of(left_in_epoch(size, reached), later));
  return requested.steps > 0 ? std::min(requested.steps, planned) : planned;
}

ScheduledStep scheduled_step(const RequestedLength& requested, const EpochSize& first,
                             const Reached& reached) noexcept {
  if (steps_end_it(requested, first)) return {static_cast<double>(reached.step), requested.steps};
  const std::int64_t in_an_epoch = first.samples / first.global_batch;
  const double in_this_epoch =
      static_cast<double>(reached.consumed) / static_cast<double>(first.global_batch);
  return {static_cast<double>(product_of(reached.epoch, in_an_epoch)) +
              std::min(in_this_epoch, static_cast<double>(in_an_epoch)),
          product_of(std::max<std::int64_t>(1, requested.epochs), in_an_epoch)};
}

std::string why_schedule_is_cut(const RequestedLength& requested, const EpochSize& first,
                                const EpochSize& now, const Reached& reached) {
  if (requested.epochs == 0 || requested.steps == 0) return {};
  const bool planned_steps_end_it = steps_end_it(requested, first);
  const std::int64_t last = planned_steps({requested.epochs, 0}, now, reached);
  if (planned_steps_end_it == (requested.steps < last)) return {};
  return fmt::format(
      "schedule: with steps of {} samples, {} ends the run, at step {}; the learning rate was "
      "planned to the end of {}, for steps of {}, and ends above 0",
      now.global_batch, planned_steps_end_it ? "--epochs" : "--steps",
      std::min(last, requested.steps), planned_steps_end_it ? "--steps" : "--epochs",
      first.global_batch);
}

}  // namespace ddp::train
