// SPDX-License-Identifier: Apache-2.0
// Where the newest state can be restored from. A state in the memory of nodes is lost with the last
// of them, or with any of them if each has a part. It does not outlive the job.
#pragma once

#include <string>
#include <vector>

#include "ddp_runtime/elastic/events.h"

namespace ddp::elastic {

class KeptStates {
 public:
  // `holders` have it in memory; a state on a disk has none. `divided`: each has a part.
  void add(const State& state, const std::vector<std::string>& holders, bool divided = false);
  void lost(const std::string& node);
  // The newest one that these nodes can restore. Of the same step, the one on a disk, which the
  // program prefers, too.
  State best_for(const std::vector<std::string>& nodes) const;
  // The newest one, even if no node can restore it any more.
  const State& newest() const noexcept { return memory_is_newer() ? memory_ : disk_; }
  // Those of these nodes, in their order, that have the newest state in memory.
  std::vector<std::string> holders_among(const std::vector<std::string>& nodes) const;
  // Whether each of them has a part of it.
  bool divided() const noexcept { return divided_; }
  const State& on_disk() const noexcept { return disk_; }
  bool any() const noexcept { return disk_.tier != Tier::none || memory_.tier != Tier::none; }

 private:
  bool memory_is_newer() const noexcept;

  State disk_;
  State memory_;
  bool divided_ = false;
  std::vector<std::string> holders_;  // a copy of ten thousand names takes less time than a set
};

}  // namespace ddp::elastic
