// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/clock_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace ddp::profile {
namespace {

// Pairs of moments grow with the square of their number.
constexpr std::size_t kMaxMoments = 200;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<CommonMoment> some_of(std::span<const CommonMoment> moments) {
  const std::size_t stride = (moments.size() + kMaxMoments - 1) / kMaxMoments;
  std::vector<CommonMoment> some;
  for (std::size_t i = 0; i < moments.size(); i += stride) some.push_back(moments[i]);
  return some;
}

// Pairs that are far apart show the rate; in those that are close, the delays would.
double rate_of(const std::vector<CommonMoment>& moments) {
  constexpr std::size_t kLeastMoments = 8;
  if (moments.size() < kLeastMoments) return 0;
  const auto [first, last] = std::ranges::minmax(moments, {}, &CommonMoment::there);
  const double apart = (last.there - first.there) / 3;
  if (!(apart > 0)) return 0;
  std::vector<double> rates;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    for (std::size_t j = i + 1; j < moments.size(); ++j) {
      const double between = moments[j].there - moments[i].there;
      if (std::abs(between) < apart) continue;
      rates.push_back((moments[j].here - moments[i].here) / between - 1);
    }
  }
  return rates.empty() ? 0 : median(std::move(rates));
}

}  // namespace

std::optional<ClockFit> fit_clock(std::span<const CommonMoment> moments) {
  if (moments.empty()) return std::nullopt;
  const auto some = some_of(moments);
  ClockFit fit;
  const auto [first, last] = std::ranges::minmax(some, {}, &CommonMoment::there);
  fit.origin = (first.there + last.there) / 2;
  fit.rate = rate_of(some);
  std::vector<double> values;
  values.reserve(some.size());
  for (const auto& moment : some) values.push_back(moment.here - fit.here(moment.there));
  fit.offset = median(values);
  for (auto& value : values) value = std::abs(value - fit.offset);
  fit.residual = median(std::move(values));
  return fit;
}

}  // namespace ddp::profile
