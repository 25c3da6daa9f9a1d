// SPDX-License-Identifier: Apache-2.0
// Prefixes of the names of arrays, which consist of components separated by '/' or '.'.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddp::ckpt {

// The prefix to remove: "model" means "model/" if a name starts with that, else "model." if a name
// starts with that. A prefix that ends in a separator stays as it is.
std::string prefix_in(const std::string& prefix, std::span<const std::string_view> names);

// The prefix to add: "model" means "model/".
std::string prefix_to_add(const std::string& prefix);

}  // namespace ddp::ckpt
