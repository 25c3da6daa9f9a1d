// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/placement.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/text.h"

namespace ddp::elastic {
namespace {

std::string switch_of(const Switches& switches, const std::string& node) {
  const auto at = switches.find(node);
  return at == switches.end() ? "" : at->second;
}

// How many switches the two paths share, from the top.
std::ptrdiff_t shared_switches(std::string_view left, std::string_view right) {
  const auto lefts = split(left, '.');
  const auto rights = split(right, '.');
  return std::ranges::mismatch(lefts, rights).in1 - lefts.begin();
}

// Takes the node that is nearest to `neighbor`, and of equally near ones the first.
std::string take_near(std::vector<std::string>& spares, const Switches& switches,
                      const std::string& neighbor) {
  const auto wanted = switch_of(switches, neighbor);
  const auto chosen = std::ranges::max_element(spares, {}, [&](const auto& node) {
    return shared_switches(wanted, switch_of(switches, node));
  });
  std::string node = *chosen;
  spares.erase(chosen);
  return node;
}

}  // namespace

std::vector<std::string> place(const std::vector<std::string>& previous,
                               const std::vector<std::string>& usable, const Settings& settings,
                               const Switches& switches) {
  const std::size_t size = largest_size(settings, usable.size());
  if (size == 0) return {};
  const std::unordered_set<std::string_view> there(usable.begin(), usable.end());
  const std::unordered_set<std::string_view> were(previous.begin(), previous.end());
  std::vector<std::string> spares;
  for (const auto& node : usable) {
    if (!were.contains(node)) spares.push_back(node);
  }
  std::vector<std::string> chosen;
  const bool same_size = size == previous.size();
  for (const auto& node : previous) {
    if (chosen.size() == size) break;
    if (there.contains(node)) {
      chosen.push_back(node);
    } else if (same_size) {
      chosen.push_back(take_near(spares, switches, node));
    }
  }
  const auto missing = static_cast<std::ptrdiff_t>(size - chosen.size());
  chosen.insert(chosen.end(), spares.begin(), spares.begin() + missing);
  return chosen;
}

}  // namespace ddp::elastic
