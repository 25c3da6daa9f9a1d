// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/group_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ddp_runtime/comm/group/call_record.h"

namespace ddp::comm {
namespace {

constexpr std::size_t kMaxListedRanks = 8;

// The difference between all neighbors in the list; 0 if it is not the same.
int common_step(std::span<const int> ranks) {
  const int step = ranks[1] - ranks[0];
  for (std::size_t i = 2; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != step) return 0;
  }
  return std::max(step, 0);
}

// Groups whose lists are cut off alike would otherwise have the same name.
std::string mark_of_unlisted(std::span<const int> ranks) {
  if (ranks.size() <= kMaxListedRanks || common_step(ranks) > 0) return "";
  std::uint64_t hash = 0;
  for (const int rank : ranks) hash = hash_on(hash, std::to_string(rank));
  return fmt::format(" {:08x}", hash & 0xffffffffU);
}

}  // namespace

std::string describe_ranks(std::span<const int> ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const int step = ranks.size() > 3 ? common_step(ranks) : 0;
  if (step == 1) return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  if (step > 1) {
    return fmt::format("ranks {} to {} in steps of {}", ranks.front(), ranks.back(), step);
  }
  std::string text = "ranks ";
  const std::size_t shown = std::min(ranks.size(), kMaxListedRanks);
  for (std::size_t i = 0; i < shown; ++i) {
    const std::string_view between = i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ";
    text += fmt::format("{}{}", between, ranks[i]);
  }
  if (shown < ranks.size()) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

GroupName name_of_part(const std::string& name, std::span<const int> world_ranks, int number) {
  const std::string ranks = describe_ranks(world_ranks);
  const std::string which = number == 1 ? "" : fmt::format(" no. {}", number);
  const std::string text = name.empty() ? fmt::format("the group{} of {}", which, ranks)
                                        : fmt::format("group '{}'{} ({})", name, which, ranks);
  return {.channel = text + mark_of_unlisted(world_ranks),
          .after = " of " + text,
          .thread = "ddp-" + (name.empty() ? "group" : name),
          .of_some_ranks = true};
}

GroupName GroupName::of_channel(const std::string& name) const {
  return {.channel = of_some_ranks ? channel + ", " + name : name,
          .before = name + " ",
          .after = after,
          .thread = "ddp-" + name,
          .of_some_ranks = of_some_ranks};
}

}  // namespace ddp::comm
