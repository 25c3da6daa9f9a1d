// SPDX-License-Identifier: Apache-2.0
// Training loops that run in turns, so that a slowdown of the machine affects all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::bench {

struct Contender {
  std::string name;
  std::function<std::vector<double>(std::int64_t)>
      run;                           // runs this many steps and returns the seconds of each
  std::vector<double> seconds = {};  // time of every measured step, block by block
};

// Runs `step` this many times, and returns the seconds of each.
std::vector<double> time_steps(std::int64_t steps, const std::function<void()>& step);

// Collective. Runs at least `steps` steps of each in blocks of `block`, after one block each as a
// warm-up. They take turns going first, because the first one of a round may find colder caches.
// Each step has the time of the slowest rank.
void take_turns(comm::Group& group, std::vector<Contender>& contenders, std::int64_t steps,
                std::int64_t block);

// {"our_p50_over_its_p50": .., "ratio_per_round": ..}
nlohmann::json ratios(const Contender& ours, const Contender& theirs, std::int64_t block);
// The same, and {"step_seconds": ..} of theirs.
nlohmann::json comparison(const Contender& ours, const Contender& theirs, std::int64_t block);

}  // namespace ddp::bench
