// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run_length.h"

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

ScheduledStep scheduled_step(const RequestedLength& requested, const EpochSize& size,
                             const Reached& reached) noexcept {
  const std::int64_t planned = planned_steps({requested.epochs, 0}, size, reached);
  if (requested.steps > 0 && requested.steps < planned) return {reached.step, requested.steps};
  const std::int64_t in_an_epoch = size.samples / size.global_batch;
  const std::int64_t in_this_epoch = std::min(reached.consumed / size.global_batch, in_an_epoch);
  return {sum_of(product_of(reached.epoch, in_an_epoch), in_this_epoch),
          product_of(requested.epochs, in_an_epoch)};
}

}  // namespace ddp::train
