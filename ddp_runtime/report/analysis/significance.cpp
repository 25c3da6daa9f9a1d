// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/significance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "ddp_runtime/report/analysis/sample.h"
#include "ddp_runtime/report/analysis/student.h"
#include "ddp_runtime/report/document/format.h"

namespace ddp::report {
namespace {

constexpr std::size_t kMinRuns = 4;

std::optional<Sample> sample_of_logarithms(std::span<const double> values) {
  std::vector<double> logs;
  logs.reserve(values.size());
  for (const double value : values) {
    if (!std::isfinite(value) || value <= 0) return std::nullopt;
    logs.push_back(std::log(value));
  }
  if (logs.empty()) return std::nullopt;
  return sample_of(logs);
}

}  // namespace

std::optional<Change> change_of(std::span<const double> a, std::span<const double> b) {
  const auto from = sample_of_logarithms(a);
  const auto to = sample_of_logarithms(b);
  if (!from || !to || a.size() + b.size() < kMinRuns) return std::nullopt;
  const auto degrees = static_cast<double>(a.size() + b.size() - 2);
  const double noise = std::sqrt((from->squares + to->squares) / degrees);
  const double error = noise * std::sqrt(1 / from->count + 1 / to->count);
  const double middle = to->mean - from->mean;
  const double half = student_99th(degrees) * error;
  return Change{std::expm1(middle), std::expm1(middle - half), std::expm1(middle + half),
                std::expm1(noise)};
}

Judgment judge(const std::optional<Change>& change, double limit) {
  if (!change) return Judgment::cannot_tell;
  if (change->most <= limit) return Judgment::fine;
  const bool beyond_noise = change->least > 0;
  return beyond_noise && change->estimate > limit ? Judgment::regression : Judgment::cannot_tell;
}

std::string sentence_of(const Change& change, const std::string& more, const std::string& less) {
  if (change.least <= 0 && change.most >= 0) {
    return fmt::format("B and A cannot be distinguished: {} to {}", signed_percent(change.least),
                       signed_percent(change.most));
  }
  const bool grown = change.estimate > 0;
  const double one = std::abs(change.least);
  const double other = std::abs(change.most);
  return fmt::format("B is {} ({} to {}) {} than A", percent(std::abs(change.estimate)),
                     percent(std::min(one, other)), percent(std::max(one, other)),
                     grown ? more : less);
}

}  // namespace ddp::report
