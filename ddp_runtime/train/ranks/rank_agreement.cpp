// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/ranks/rank_agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>

#include "base/errors.h"

namespace ddp::train {
namespace {

constexpr std::size_t kMaxNamedRanks = 8;

// Returns the most frequent description; in a tie, that of the lowest rank.
const std::string& most_frequent_run(const std::vector<std::string>& runs) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& run : runs) ++counts[run];
  return *std::max_element(runs.begin(), runs.end(), [&](const auto& a, const auto& b) {
    return counts.at(a) < counts.at(b);
  });
}

std::string value_text(const nlohmann::json& run, const std::string& name) {
  if (!run.contains(name)) return "not set";
  const auto& value = run.at(name);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string differences_of(const nlohmann::json& mine, const nlohmann::json& theirs) {
  auto names = mine;
  names.update(theirs);
  std::vector<std::string> found;
  for (const auto& [name, value] : names.items()) {
    const auto here = value_text(mine, name);
    const auto there = value_text(theirs, name);
    if (here != there) found.push_back(fmt::format("{} {} instead of {}", name, here, there));
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace

std::string rank_differences(const std::vector<std::string>& runs) {
  const auto& agreed = most_frequent_run(runs);
  const auto reference = std::find(runs.begin(), runs.end(), agreed) - runs.begin();
  const auto theirs = nlohmann::json::parse(agreed);
  std::vector<std::string> differing;
  std::size_t more = 0;
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    if (runs[rank] == agreed) continue;
    if (differing.size() == kMaxNamedRanks) {
      ++more;
      continue;
    }
    differing.push_back(fmt::format("rank {} has {}", rank,
                                    differences_of(nlohmann::json::parse(runs[rank]), theirs)));
  }
  if (differing.empty()) return {};
  if (more > 0) differing.push_back(fmt::format("{} more ranks differ", more));
  return fmt::format(
      "the ranks were started with different options or data: {} (as rank {} has); start all ranks "
      "with the same options and data",
      fmt::join(differing, "; "), reference);
}

std::string first_problem(comm::Group& group, const std::string& mine, const std::string& host) {
  const auto said =
      mine.empty() ? mine : fmt::format("rank {} on {}: {}", group.rank(), host, mine);
  for (const auto& problem : group.all_gather_text(said)) {
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string problem_on_leader(comm::Group& group, const std::function<void()>& work) {
  std::string problem;
  if (group.rank() == 0) {
    try {
      work();
    } catch (const std::exception& e) {
      problem = e.what();
    }
  }
  return group.broadcast_text(problem, 0);
}

void require_same_run(comm::Group& group, const nlohmann::json& run) {
  if (group.size() == 1) return;
  const std::string mine = run.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const int differs = mine == group.broadcast_text(mine, 0) ? 0 : 1;
  // All descriptions are collected only for an error, because there may be thousands of ranks.
  if (group.all_reduce_value(differs, comm::ReduceOp::max) == 0) return;
  throw UsageError(rank_differences(group.all_gather_text(mine)));
}

}  // namespace ddp::train
