// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/kept_states.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_set>

namespace ddp::elastic {

void KeptStates::add(const State& state, const std::vector<std::string>& holders, bool divided) {
  if (state.tier == Tier::disk) disk_ = state;
  if (state.tier != Tier::memory) return;
  memory_ = state;
  divided_ = divided;
  holders_ = holders;
}

void KeptStates::lost(const std::string& node) {
  if (std::erase(holders_, node) > 0 && divided_) holders_.clear();
}

State KeptStates::best_for(const std::vector<std::string>& nodes) const {
  const auto held = holders_among(nodes).size();
  const auto needed = divided_ ? holders_.size() : 1;
  const bool whole = !holders_.empty() && held >= needed;
  return whole && memory_is_newer() ? memory_ : disk_;
}

std::vector<std::string> KeptStates::holders_among(const std::vector<std::string>& nodes) const {
  const std::unordered_set<std::string_view> have(holders_.begin(), holders_.end());
  std::vector<std::string> holders;
  std::ranges::copy_if(nodes, std::back_inserter(holders),
                       [&have](const auto& node) { return have.contains(node); });
  return holders;
}

// Without a state on a disk, one of step 0 is newer, too.
bool KeptStates::memory_is_newer() const noexcept {
  return memory_.tier == Tier::memory && (disk_.tier == Tier::none || memory_.step > disk_.step);
}

}  // namespace ddp::elastic
