// SPDX-License-Identifier: Apache-2.0
#include "bench/contenders.h"

#include <utility>

#include "bench/statistics.h"

namespace ddp::bench {

void take_turns(comm::Group& group, std::vector<Contender>& contenders, std::int64_t steps,
                std::int64_t block) {
  std::size_t round = 0;
  for (std::int64_t done = -block; done < steps; done += block, ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& contender = contenders[(round + i) % contenders.size()];
      group.barrier("bench").wait();
      const auto seconds = contender.run(block);
      if (done < 0) continue;
      contender.seconds.insert(contender.seconds.end(), seconds.begin(), seconds.end());
    }
  }
  for (auto& contender : contenders) {
    contender.seconds = slowest(group, std::move(contender.seconds));
  }
}

nlohmann::json comparison(const Contender& ours, const Contender& theirs, std::int64_t block) {
  return {{"step_seconds", percentiles(theirs.seconds)},
          {"our_p50_over_its_p50", median(ours.seconds) / median(theirs.seconds)},
          {"ratio_per_round", percentiles(block_ratios(ours.seconds, theirs.seconds, block))}};
}

}  // namespace ddp::bench
