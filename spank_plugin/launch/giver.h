// SPDX-License-Identifier: Apache-2.0
// Whose value a variable gets that the user, a SPEC and the site may all set, as MASTER_ADDR.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "spank_plugin/launch/marker.h"
#include "spank_plugin/launch/settings.h"

namespace ddp::launch {

enum class Giver : std::uint8_t {
  setting,       // a SPEC, or plugstack.conf
  user,          // the user's own variable
  earlier_plan,  // what this step was told before
  none,          // the value must be derived
};

// The precedence: command line, the user's variable, the user's SLURM_DDP, what this step was told
// before, plugstack.conf. `setting` is where the setting for this variable comes from, if there is
// one.
Giver giver_of(const std::string& name, std::optional<Origin> setting, const Inherited& inherited);

template <typename T>
Giver giver_of(const std::string& name, const std::optional<Chosen<T>>& setting,
               const Inherited& inherited) {
  return giver_of(name, setting ? std::optional(setting->origin) : std::nullopt, inherited);
}

}  // namespace ddp::launch
