// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/enclosing_step.h"

#include <cstdlib>

#include "spank_plugin/launch/step/marker.h"

namespace ddp::spank {

void forget_enclosing_plan() {
  const launch::Inherited inherited(
      [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        if (value == nullptr) return std::nullopt;
        return value;
      },
      "");
  if (!inherited.is_set(launch::variable::kMarker)) return;
  for (const auto& name : inherited.marked_names()) unsetenv(name.c_str());
  for (const auto* name : launch::kRankVariables) unsetenv(name);
  for (const auto* name : {launch::variable::kMarker, launch::variable::kSettings,
                           launch::variable::kRankZeroHost, launch::variable::kComponents,
                           launch::variable::kSwitchMap, launch::variable::kNodeAddresses}) {
    unsetenv(name);
  }
}

}  // namespace ddp::spank
