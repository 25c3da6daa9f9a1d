// One rank's shard of the parameters, as its server keeps it: what comes from whom, and who may
// read when. Stale synchronous parallel (Ho et al., "More Effective Distributed ML via a Stale
// Synchronous Parallel Parameter Server", 2013). Pure: no messages, no threads.
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

  // `rank` has done another step. Its gradient, its share of the mean over ranks, is empty if there
  // was none to hand in. Without staleness a gradient is only applied when all of the step have
  // come, in the order of the ranks, so that the bits do not depend on who was first: it must stay
  // where it is until the rank's next read is answered.
  void push(int rank, std::span<const float> gradient, double learning_rate);

  // `rank` wants to read when every rank has done `steps` steps.
  void ask(int rank, std::int64_t steps) { reads_[static_cast<std::size_t>(rank)] = steps; }
  // A rank whose turn it is; its question is answered by what values() is now.
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

  // `steps`: how many ticks there must have been before it.
  void apply(const Gradient& gradient, std::int64_t steps);

  MomentumSgd parameters_;
  Clocks clocks_;
  std::int64_t staleness_;
  std::int64_t ticks_ = 0;
  std::vector<Gradient> held_;                      // by rank
  std::vector<std::optional<std::int64_t>> reads_;  // by rank
};

}  // namespace ddp::parameter_server
