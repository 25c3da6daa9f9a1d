// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/plan_builder.h"

namespace ddp::launch {

void PlanBuilder::set(std::string name, std::string value, std::string rule, std::string source) {
  plan_.entries.push_back(
      {std::move(name), std::move(value), std::move(rule), std::move(source), false, false});
}

void PlanBuilder::set_marked(std::string name, std::string value, std::string rule,
                             std::string source) {
  marked_.push_back(name);
  set(std::move(name), std::move(value), std::move(rule), std::move(source));
}

void PlanBuilder::suggest(std::string name, std::string value, std::string rule,
                          std::string source) {
  if (keep_if_users(name) || repeat_earlier(name)) return;
  set_marked(std::move(name), std::move(value), std::move(rule), std::move(source));
}

void PlanBuilder::correct(const std::string& name, const std::string& value, std::string rule,
                          std::string source) {
  if (inherited_.from_user(name) == value) return;
  set_marked(name, value, std::move(rule), std::move(source));
}

bool PlanBuilder::keep_if_users(const std::string& name) {
  const auto value = inherited_.from_user(name);
  if (!value) return false;
  plan_.entries.push_back({name, *value, "kept: the user set it", "environment", true, false});
  return true;
}

bool PlanBuilder::repeat_earlier(const std::string& name) {
  const auto value = inherited_.from_this_step(name);
  if (!value) return false;
  set_marked(name, *value, "set before for this step", variable::kMarker);
  return true;
}

void PlanBuilder::add(const PlanEntry& entry) {
  if (!entry.kept) marked_.push_back(entry.name);
  plan_.entries.push_back(entry);
}

void PlanBuilder::remove(const std::string& name, std::string rule) {
  if (!inherited_.is_set(name)) return;
  plan_.entries.push_back({name, "", std::move(rule), "environment", false, true});
}

std::string PlanBuilder::value_of(const std::string& name) const {
  const PlanEntry* entry = plan_.find(name);
  return entry == nullptr ? "" : entry->value;
}

void PlanBuilder::remove_left_overs() {
  for (const auto& name : inherited_.marked_names()) {
    if (plan_.find(name) == nullptr && inherited_.is_left_over(name)) {
      remove(name, "left over from the enclosing step");
    }
  }
}

void PlanBuilder::set_marker(const StepFacts& step) {
  Marker marker{step.id, {}, step.reserved_ports};
  for (const auto& name : marked_) {
    marker.variables.push_back({name, hash_for_marker(value_of(name))});
  }
  set(variable::kMarker, format_marker(marker),
      "the variables of this plan, for steps inside this one", "this plan");
}

}  // namespace ddp::launch
