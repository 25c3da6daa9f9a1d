// SPDX-License-Identifier: Apache-2.0
// Precedence for variables such as MASTER_ADDR that the user, a SPEC and the site can all set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/marker.h"

namespace ddp::launch {

enum class Giver : std::uint8_t {
  setting,       // a SPEC, or plugstack.conf
  user,          // the user's own variable
  earlier_plan,  // an earlier plan for this step
  none,          // the value must be derived
};

// The order is: the command line, the user's variable, the user's SLURM_DDP, an earlier plan for
// this step, plugstack.conf. `setting` is the origin of the setting for this variable, if there is
// one.
Giver giver_of(const std::string& name, std::optional<Origin> setting, const Inherited& inherited);

template <typename T>
Giver giver_of(const std::string& name, const std::optional<Chosen<T>>& setting,
               const Inherited& inherited) {
  return giver_of(name, setting ? std::optional(setting->origin) : std::nullopt, inherited);
}

}  // namespace ddp::launch
