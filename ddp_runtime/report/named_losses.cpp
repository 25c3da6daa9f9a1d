// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/named_losses.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddp::report {

std::string ranks(int count) {
  return fmt::format("{} rank{}", count, count == 1 ? "" : "s");
}

std::vector<NamedLoss> named_losses(const Losses& losses) {
  std::vector<NamedLoss> named;
  named.reserve(std::size(kPhaseNames) + 2);
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    named.push_back(
        {std::string(key), std::string(name), std::string(brief), losses.phases[index_of(phase)]});
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
  return biggest->part > 0.005 ? std::optional(*biggest) : std::nullopt;
}

}  // namespace ddp::report
