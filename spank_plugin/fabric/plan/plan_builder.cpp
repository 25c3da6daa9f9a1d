// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/plan_builder.h"

#include "base/text.h"

namespace ddp::fabric {

std::string shown(const std::string& name, const UserOverride& given) {
  return name + "=" + quote_for_display(given.value) + " (" + given.source + ")";
}

std::optional<UserOverride> PlanBuilder::given(const std::string& name) const {
  const auto value = user_ ? user_(name) : std::nullopt;
  if (value && !value->empty()) return UserOverride{*value, "environment"};
  for (const auto* files : {&node_.nccl_files, &node_.open_mpi_files}) {
    if (const Assignment* found = find_assignment(*files, name)) {
      return UserOverride{found->value, found->file};
    }
  }
  return std::nullopt;
}

std::string PlanBuilder::value_of(const std::string& name) const {
  if (const Setting* setting = plan_.find(name)) return setting->value;
  const auto given_value = given(name);
  return given_value ? given_value->value : std::string();
}

bool PlanBuilder::keep(const std::string& name) {
  const auto found = given(name);
  if (!found) return false;
  const bool by_user = found->source == "environment";
  plan_.settings.push_back(
      {name, found->value, by_user ? "kept: the user set it" : "kept: a configuration file sets it",
       found->source, true});
  return true;
}

void PlanBuilder::set(const std::string& name, const std::string& value, const std::string& rule,
                      const std::string& source) {
  if (!is_decided(name)) plan_.settings.push_back({name, value, rule, source, false});
}

}  // namespace ddp::fabric
