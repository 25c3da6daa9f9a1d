// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/plan/unit_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "base/errors.h"

namespace ddp {
namespace {

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*') {
    for (std::size_t n = 0;; ++n) {
      if (matches(pattern.substr(1), name.substr(n))) return true;
      if (n == name.size() || name[n] == '.') return false;
    }
  }
  return !name.empty() && pattern.front() == name.front() &&
         matches(pattern.substr(1), name.substr(1));
}

bool is_inside(std::string_view parameter, std::string_view module) {
  return module.empty() || (parameter.size() > module.size() && parameter.starts_with(module) &&
                            parameter[module.size()] == '.');
}

bool has_parameters(const std::string& module, std::span<const ParameterUse> uses) {
  return std::ranges::any_of(uses, [&](const auto& use) { return is_inside(use.name, module); });
}

// Innermost modules have the longest names.
std::size_t innermost(const std::vector<Unit>& units, std::string_view parameter) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < units.size(); ++i) {
    if (!is_inside(parameter, units[i].name)) continue;
    if (best == 0 || units[i].name.size() > units[best].name.size()) best = i;
  }
  return best;
}

[[noreturn]] void throw_no_match(const std::string& pattern, std::span<const std::string> modules,
                                 std::span<const ParameterUse> uses) {
  constexpr std::size_t kMaxNamed = 8;
  std::vector<std::string> names;
  for (const auto& module : modules) {
    if (names.size() < kMaxNamed && has_parameters(module, uses)) names.push_back(module);
  }
  throw UsageError(fmt::format(
      "the pattern '{}' names no module with parameters, so it makes no unit; the model has: {}{}",
      pattern, fmt::join(names, ", "), names.size() < kMaxNamed ? "" : ", ..."));
}

std::vector<Unit> named_units(std::span<const std::string> modules,
                              std::span<const ParameterUse> uses,
                              std::span<const std::string> patterns) {
  std::vector<Unit> units(1);
  std::vector<bool> used(patterns.size());
  for (const auto& module : modules) {
    bool is_unit = false;
    for (std::size_t p = 0; p < patterns.size(); ++p) {
      if (!matches(patterns[p], module) || !has_parameters(module, uses)) continue;
      is_unit = used[p] = true;
    }
    if (is_unit) units.push_back({module, {}});
  }
  const auto unused = std::ranges::find(used, false);
  if (unused != used.end()) {
    throw_no_match(patterns[static_cast<std::size_t>(unused - used.begin())], modules, uses);
  }
  return units;
}

}  // namespace

std::vector<Unit> plan_units(std::span<const std::string> modules,
                             std::span<const ParameterUse> uses,
                             std::span<const std::string> patterns) {
  auto units = named_units(modules, uses, patterns);
  struct Owner {
    std::size_t unit;
    std::string name;
  };
  std::map<std::size_t, Owner> owners;
  // What the root has is whole all the time, wherever else it is used.
  for (const auto& use : uses) {
    const std::size_t unit = innermost(units, use.name);
    const auto [known, is_new] = owners.try_emplace(use.parameter, Owner{unit, use.name});
    if (!is_new && unit == 0) known->second = {0, use.name};
  }
  for (const auto& use : uses) {
    const Owner& owner = owners.at(use.parameter);
    const std::size_t unit = innermost(units, use.name);
    if (owner.unit == 0 || owner.unit == unit) continue;
    throw UsageError(fmt::format(
        "the parameter '{}' of unit '{}' is also '{}' of unit '{}', which would read it while it "
        "is "
        "not whole; choose units that keep shared parameters together, or leave them to the root",
        owner.name, units[owner.unit].name, use.name, units[unit].name));
  }
  for (const auto& [parameter, owner] : owners) units[owner.unit].parameters.push_back(parameter);
  return units;
}

}  // namespace ddp
