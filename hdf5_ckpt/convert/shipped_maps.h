// SPDX-License-Identifier: Apache-2.0
// Name maps for weights of other libraries that fit the built-in models. See Note [Format of a name
// map].
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp::ckpt {

// Returns the text of the map, nullopt if there is none of this name.
std::optional<std::string_view> shipped_map(std::string_view name);

// "gpt2 and torchvision-resnet".
std::string shipped_map_names();

}  // namespace ddp::ckpt
