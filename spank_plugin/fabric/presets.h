// Settings of known fabrics. They are somebody's measurements on that fabric and wrong on others,
// so that a preset applies only where the site or the user asks for it by name.
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
  std::string source;                                       // where its values come from
  std::vector<std::pair<std::string, std::string>> values;  // variables, in order
};

// efa, azure-ndv4, azure-ndv5, oci-roce, slingshot, gib.
std::vector<Preset> built_in_presets();

// Among the site's own, then the built-in ones: a site may replace one.
std::optional<Preset> find_preset(std::span<const Preset> own, std::string_view name);

// "efa, azure-ndv4, .., none" for messages.
std::string preset_names(std::span<const Preset> own);

// Whether a preset may set the variable: those of the communication libraries. Never
// LD_LIBRARY_PATH or LD_PRELOAD.
bool may_preset_set(std::string_view variable) noexcept;

}  // namespace ddp::fabric
