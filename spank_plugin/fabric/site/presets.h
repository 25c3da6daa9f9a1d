// SPDX-License-Identifier: Apache-2.0
// Settings of known fabrics. Each was measured on one fabric and is wrong on others, so a preset
// applies only if the site or the user requests it by name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::fabric {

struct Preset {
  std::string name;
  std::string source;                                       // the document that the values are from
  std::vector<std::pair<std::string, std::string>> values;  // variables, in order
};

// Returns the presets efa, azure-ndv4, azure-ndv5, oci-roce, slingshot and gib.
std::vector<Preset> built_in_presets();

// Searches the site's own presets, then the built-in ones, so that a site may replace one.
std::optional<Preset> find_preset(std::span<const Preset> own, std::string_view name);

// Returns "efa, azure-ndv4, .., none" for messages.
std::string preset_names(std::span<const Preset> own);

// Returns true if a preset may set the variable: only variables of the communication libraries,
// never LD_LIBRARY_PATH or LD_PRELOAD.
bool may_preset_set(std::string_view variable) noexcept;

}  // namespace ddp::fabric
