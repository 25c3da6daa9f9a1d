// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parameter_server/shard.h"

namespace ddp::parameter_server {

void Shard::push(int rank, std::span<const float> gradient, double learning_rate) {
  const std::int64_t common = clocks_.slowest();
  clocks_.advance(rank);
  if (staleness_ > 0) return apply({gradient, learning_rate}, common + 1);
  held_[static_cast<std::size_t>(rank)] = {gradient, learning_rate};
  if (clocks_.slowest() == common) return;
  for (const auto& held : held_) apply(held, common + 1);
}

void Shard::apply(const Gradient& gradient, std::int64_t steps) {
  if (gradient.values.empty()) return;
  // As in synchronous training, a step for which no rank had a gradient does not tick.
  if (ticks_ < steps) parameters_.tick(gradient.learning_rate);
  ticks_ = steps;
  parameters_.add(gradient.values, gradient.learning_rate);
}

std::optional<int> Shard::take_answerable() {
  const std::int64_t common = clocks_.slowest();
  for (std::size_t rank = 0; rank < reads_.size(); ++rank) {
    if (!reads_[rank] || *reads_[rank] > common) continue;
    reads_[rank].reset();
    return static_cast<int>(rank);
  }
  return std::nullopt;
}

}  // namespace ddp::parameter_server
