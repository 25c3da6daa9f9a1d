// SPDX-License-Identifier: Apache-2.0
// Prefixes of the names of arrays, which consist of components separated by '/' or '.'.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::ckpt {

// The prefix to remove: "model" means "model/" if a name starts with that, else "model." if a name
// starts with that. A prefix that ends in a separator stays as it is.
std::string prefix_in(const std::string& prefix, std::span<const std::string_view> names);

struct ShortName {
  std::string name;   // not empty
  std::size_t place;  // in the list of names
};

// The names that start with the prefix (prefix_in()), without it, in their order.
std::vector<ShortName> without_prefix(const std::string& prefix,
                                      std::span<const std::string_view> names);

// The prefix to add: "model" means "model/".
std::string prefix_to_add(const std::string& prefix);

}  // namespace ddp::ckpt
