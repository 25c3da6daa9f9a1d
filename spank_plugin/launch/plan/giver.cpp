// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/giver.h"

namespace ddp::launch {

Giver giver_of(const std::string& name, std::optional<Origin> setting, const Inherited& inherited) {
  if (setting == Origin::command_line) return Giver::setting;
  if (inherited.from_user(name)) return Giver::user;
  if (setting == Origin::environment) return Giver::setting;
  if (inherited.from_this_step(name)) return Giver::earlier_plan;
  return setting ? Giver::setting : Giver::none;
}

}  // namespace ddp::launch
