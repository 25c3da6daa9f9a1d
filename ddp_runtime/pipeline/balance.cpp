// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/balance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::pipeline {
namespace {

void require_pieces(int pieces, int stages) {
  if (stages < 1) throw UsageError("a pipeline has at least one stage");
  if (pieces >= stages) return;
  throw UsageError(
      fmt::format("the model has {}, which cannot be divided among {} stages; use at most "
                  "{} stages, or "
                  "a model with more layers",
                  counted(pieces, "piece"), stages, pieces));
}

// The number of pieces from `first` on that cost at most `limit`, leaving one for each of the
// later stages.
int fill_stage(std::span<const double> costs, std::size_t first, int later, double limit) {
  const auto most = static_cast<int>(costs.size() - first) - later;
  double sum = costs[first];
  int count = 1;
  while (count < most && sum + costs[first + static_cast<std::size_t>(count)] <= limit) {
    sum += costs[first + static_cast<std::size_t>(count++)];
  }
  return count;
}

// Fills one stage after the other. Returns what is too many for the last one as its pieces, too.
Balance fill(std::span<const double> costs, int stages, double limit) {
  Balance balance;
  std::size_t first = 0;
  for (int stage = 0; stage + 1 < stages; ++stage) {
    balance.push_back(fill_stage(costs, first, stages - 1 - stage, limit));
    first += static_cast<std::size_t>(balance.back());
  }
  balance.push_back(static_cast<int>(costs.size() - first));
  return balance;
}

double heaviest(std::span<const double> costs, const Balance& balance) {
  const auto sums = costs_of_stages(costs, balance);
  return *std::max_element(sums.begin(), sums.end());
}

}  // namespace

std::vector<double> costs_of_stages(std::span<const double> costs, const Balance& balance) {
  std::vector<double> sums;
  auto next = costs.begin();
  for (const int count : balance) {
    sums.push_back(std::accumulate(next, next + count, 0.0));
    next += count;
  }
  return sums;
}

// The heaviest stage of the best balance costs as much as some row of pieces. With a smaller limit,
// filling the stages one after the other leaves too much for the last one.
Balance balanced(std::span<const double> costs, int stages) {
  require_pieces(static_cast<int>(costs.size()), stages);
  std::vector<double> limits;
  for (std::size_t first = 0; first < costs.size(); ++first) {
    double sum = 0;
    for (std::size_t i = first; i < costs.size(); ++i) limits.push_back(sum += costs[i]);
  }
  std::sort(limits.begin(), limits.end());
  const auto fits = [&](double limit) {
    return heaviest(costs, fill(costs, stages, limit)) <= limit;
  };
  const auto best = std::partition_point(limits.begin(), limits.end(),
                                         [&](double limit) { return !fits(limit); });
  return fill(costs, stages, best == limits.end() ? limits.back() : *best);
}

Balance parse_balance(std::string_view text, std::string_view option) {
  constexpr std::uint64_t kMaxPieces = 1'000'000;
  Balance balance;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto number = parse_decimal(std::string(text.substr(begin, end - begin)), kMaxPieces);
    if (!number) {
      throw UsageError(
          fmt::format("{} takes parameters, time, or the number of pieces of each stage, such as "
                      "3,4,4,3, not '{}'",
                      option, text));
    }
    if (*number == 0) {
      throw UsageError(
          fmt::format("{} {} leaves stage {} without pieces; give each stage at least "
                      "one",
                      option, text, balance.size()));
    }
    balance.push_back(static_cast<int>(*number));
    begin = end + 1;
  }
  return balance;
}

void require_fitting(const Balance& balance, int stages, int pieces) {
  require_pieces(pieces, stages);
  const int sum = std::accumulate(balance.begin(), balance.end(), 0);
  if (std::ssize(balance) == stages && sum == pieces) return;
  throw UsageError(
      fmt::format("the balance {} has {} pieces in {} stages, but the model has {} pieces and the "
                  "pipeline {} stages",
                  fmt::join(balance, ","), sum, balance.size(), pieces, stages));
}

}  // namespace ddp::pipeline
