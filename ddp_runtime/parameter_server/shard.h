// SPDX-License-Identifier: Apache-2.0
// One rank's shard of the parameters on its server: applies the ranks' gradients and decides which
// rank may read when. Stale synchronous parallel (Ho et al., "More Effective Distributed ML via a
// Stale Synchronous Parallel Parameter Server", 2013). No messages, no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/parameter_server/clocks.h"
#include "ddp_runtime/parameter_server/momentum_sgd.h"

namespace ddp::parameter_server {

class Shard {
 public:
  Shard(MomentumSgd parameters, int ranks, std::int64_t staleness)
      : parameters_(std::move(parameters)),
        clocks_(ranks),
        staleness_(staleness),
        held_(static_cast<std::size_t>(ranks)),
        reads_(static_cast<std::size_t>(ranks)) {}

  // Records that `rank` has completed another step. `gradient` is its share of the mean over ranks,
  // or empty. Without staleness, gradients are applied only when all ranks' gradients of the step
  // have arrived, in rank order, so that the result does not depend on the order of arrival. The
  // gradient must therefore stay valid until the rank's next read is answered.
  void push(int rank, std::span<const float> gradient, double learning_rate);

  // Registers a read by `rank`, to be answered once every rank has completed `steps` steps.
  void ask(int rank, std::int64_t steps) { reads_[static_cast<std::size_t>(rank)] = steps; }
  // Returns a rank whose read can be answered now, with the current values().
  std::optional<int> take_answerable();

  const Clocks& clocks() const noexcept { return clocks_; }
  std::int64_t staleness() const noexcept { return staleness_; }
  std::span<const float> values() const noexcept { return parameters_.values(); }
  std::span<const float> velocity() const noexcept { return parameters_.velocity(); }

 private:
  struct Gradient {
    std::span<const float> values;
    double learning_rate = 0;
  };

  // `steps`: number of ticks that must precede the gradient.
  void apply(const Gradient& gradient, std::int64_t steps);

  MomentumSgd parameters_;
  Clocks clocks_;
  std::int64_t staleness_;
  std::int64_t ticks_ = 0;
  std::vector<Gradient> held_;                      // by rank
  std::vector<std::optional<std::int64_t>> reads_;  // by rank
};

}  // namespace ddp::parameter_server
