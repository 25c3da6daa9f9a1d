// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/named_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace ddp::report {
namespace {

constexpr double kWorthNamingLoss = 0.005;

}  // namespace

std::string ranks(int count) {
  return counted(count, "rank");
}

std::vector<NamedLoss> named_losses(const Losses& losses) {
  std::vector<NamedLoss> named;
  named.reserve(std::size(kPhaseNames) + 2);
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    NamedLoss loss{std::string(key), std::string(name), std::string(brief),
                   losses.phases[index_of(phase)]};
    if (losses.intervals) loss.interval = (*losses.intervals)[index_of(phase)];
    named.push_back(std::move(loss));
  }
  named.push_back({"unaccounted", "unaccounted", "unaccounted", losses.unaccounted});
  named.push_back({"outside", "outside the steps", "outside", losses.outside});
  return named;
}

std::optional<NamedLoss> biggest_loss(const ScalingPoint& point) {
  if (!point.losses) return std::nullopt;
  const auto named = named_losses(*point.losses);
  const auto biggest =
      std::max_element(named.begin(), named.end(),
                       [](const NamedLoss& a, const NamedLoss& b) { return a.part < b.part; });
  return biggest->part > kWorthNamingLoss ? std::optional(*biggest) : std::nullopt;
}

std::optional<NamedLoss> rival_of_biggest_loss(const ScalingPoint& point) {
  const auto biggest = biggest_loss(point);
  if (!biggest || !biggest->interval) return std::nullopt;
  std::optional<NamedLoss> rival;
  for (const auto& loss : named_losses(*point.losses)) {
    if (loss.kind == biggest->kind || loss.part <= kWorthNamingLoss || !loss.interval) continue;
    if (!rival || loss.part > rival->part) rival = loss;
  }
  if (!rival) return std::nullopt;
  return rival->interval->most > biggest->interval->least ? rival : std::nullopt;
}

}  // namespace ddp::report
