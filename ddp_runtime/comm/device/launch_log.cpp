// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/launch_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "ddp_runtime/comm/group/call_record.h"

namespace ddp::comm {

void LaunchLog::add(std::string_view signature, std::string text) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t before = kept_.empty() ? 0 : kept_.back().hash;
  kept_.push_back({hash_on(before, signature), std::move(text)});
  if (kept_.size() > kKept) kept_.pop_front();
  ++launched_;
}

std::uint64_t LaunchLog::launched() const {
  const std::lock_guard lock(mutex_);
  return launched_;
}

std::uint64_t LaunchLog::hash() const {
  const std::lock_guard lock(mutex_);
  return kept_.empty() ? 0 : kept_.back().hash;
}

LaunchFrame LaunchLog::frame(bool last) const {
  const std::lock_guard lock(mutex_);
  LaunchFrame frame{};
  frame.launched = launched_;
  frame.last = last ? 1 : 0;
  const std::size_t count = std::min(kept_.size(), LaunchFrame::kLaunches);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& launch = kept_[kept_.size() - count + i];
    auto& [hash, text] = frame.latest[LaunchFrame::kLaunches - count + i];
    hash = launch.hash;
    const auto beginning = beginning_of(launch.text, LaunchFrame::kText - 1);
    std::memcpy(text.data(), beginning.data(), beginning.size());
  }
  return frame;
}

std::optional<std::string> LaunchLog::difference(const LaunchFrame& theirs,
                                                 const Ranks& ranks) const {
  const std::lock_guard lock(mutex_);
  const std::uint64_t mine_from = launched_ - kept_.size();
  const std::uint64_t theirs_from =
      theirs.launched - std::min<std::uint64_t>(theirs.launched, LaunchFrame::kLaunches);
  const std::uint64_t from = std::max(mine_from, theirs_from);
  const std::uint64_t to = std::min(launched_, theirs.launched);
  for (std::uint64_t number = from; number < to; ++number) {
    const auto& mine = kept_[static_cast<std::size_t>(number - mine_from)];
    const auto& other =
        theirs.latest[LaunchFrame::kLaunches - static_cast<std::size_t>(theirs.launched - number)];
    if (mine.hash == other.hash) continue;
    const std::string text(other.text.data(), strnlen(other.text.data(), other.text.size()));
    // The hashes include what went before, so only the first launch that is compared can differ
    // because of an earlier one.
    const bool earlier = number == from && from > 0;
    return fmt::format(
        "ranks {} and {} launched collectives{} in different orders on their GPUs: {} launch {}, "
        "rank {} started {}, but rank {} started {}; all ranks must call the collectives of all "
        "channels in one order",
        std::min(ranks.mine, ranks.theirs), std::max(ranks.mine, ranks.theirs), ranks.of_group,
        earlier ? "in or before" : "in", number, ranks.mine, mine.text, ranks.theirs,
        sanitize_beginning(text, LaunchFrame::kText));
  }
  return std::nullopt;
}

}  // namespace ddp::comm
