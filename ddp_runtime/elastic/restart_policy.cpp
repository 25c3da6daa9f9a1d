// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace ddp::elastic {
namespace {

constexpr Seconds kFirstPause = 1;
constexpr Seconds kLongestPause = 60;

}  // namespace

RestartPolicy::RestartPolicy(const Settings& settings)
    : settings_(settings), left_(settings.max_restarts) {}

void RestartPolicy::started(std::int64_t step, Seconds now) {
  step_ = step;
  first_step_.reset();
  made_step_ = false;
  since_ = now;
}

// The program may have resumed from an older state than is known here: then its first step is not
// the first after that one.
void RestartPolicy::progressed(std::int64_t step, Seconds now) {
  failed_launches_ = 0;
  const bool is_first = !first_step_;
  if (is_first) first_step_ = step;
  if (step <= step_ && (is_first || step <= *first_step_)) return;
  step_ = step;
  made_step_ = ever_made_step_ = true;
  progress_ += now - since_;
  since_ = now;
  while (progress_ >= settings_.refill_after) {
    progress_ -= settings_.refill_after;
    if (left_ < settings_.max_restarts) ++left_;
  }
}

std::optional<std::string> RestartPolicy::failed(const Failure& failure) {
  const auto& [signature, nodes, lost_node, started] = failure;
  if (!started && !lost_node) return failed_to_launch();
  failed_launches_ = 0;
  if (made_step_) without_step_ = 0;
  if (!made_step_ && !lost_node) ++without_step_;
  const bool alike = !signature.empty() && signature == signature_ && step_ == failed_step_;
  if (!alike) on_.clear();
  alike_ = alike ? alike_ + 1 : 1;
  signature_ = signature;
  failed_step_ = step_;
  on_.insert(nodes.begin(), nodes.end());
  if (!signature.empty() && alike_ >= settings_.max_same_failure) {
    const std::vector<std::string> names(on_.begin(), on_.end());
    return fmt::format("the same failure {} times at step {}{}{}", alike_, step_,
                       names.empty() ? "" : " on " + join(names, ", "),
                       names.size() > 1 ? ", so it is not the nodes" : "");
  }
  if (without_step_ >= settings_.max_no_progress) {
    return fmt::format("{} starts in a row failed before their first step", without_step_);
  }
  if (left_ == 0) {
    return fmt::format("all {} restarts are used up (--max-restarts)", settings_.max_restarts);
  }
  --left_;
  return std::nullopt;
}

// Not the program's failure. It may be that of a node that SLURM does not know to be down yet.
std::optional<std::string> RestartPolicy::failed_to_launch() {
  if (++failed_launches_ < settings_.max_failed_launches) return std::nullopt;
  return fmt::format("no rank has started {} times in a row", failed_launches_);
}

Seconds RestartPolicy::pause() const {
  if (failed_launches_ > 0) {
    return std::min(settings_.launch_pause * std::pow(2, failed_launches_ - 1), kLongestPause);
  }
  if (without_step_ < 2) return 0;
  Seconds pause = kFirstPause;
  for (int i = 2; i < without_step_ && pause < kLongestPause; ++i) pause *= 4;
  return std::min(pause, kLongestPause);
}

}  // namespace ddp::elastic
