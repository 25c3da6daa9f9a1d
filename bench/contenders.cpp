// SPDX-License-Identifier: Apache-2.0
#include "bench/contenders.h"

#include <chrono>
#include <utility>

#include "bench/statistics.h"
#include "ddp_runtime/profile/interval.h"

namespace ddp::bench {

using profile::Clock;

std::vector<double> time_steps(std::int64_t steps, const std::function<void()>& step) {
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(steps));
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    step();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return seconds;
}

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

nlohmann::json ratios(const Contender& ours, const Contender& theirs, std::int64_t block) {
  return {{"our_p50_over_its_p50", median(ours.seconds) / median(theirs.seconds)},
          {"ratio_per_round", percentiles(block_ratios(ours.seconds, theirs.seconds, block))}};
}

nlohmann::json comparison(const Contender& ours, const Contender& theirs, std::int64_t block) {
  auto result = ratios(ours, theirs, block);
  result["step_seconds"] = percentiles(theirs.seconds);
  return result;
}

}  // namespace ddp::bench
