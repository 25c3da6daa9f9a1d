// SPDX-License-Identifier: Apache-2.0
// The error for parameters without a gradient.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddp {

// `names` are those of `all` parameters that got no gradient. With `static_graph` they got one in
// the first step.
std::string describe_missing(const std::vector<std::string>& names, std::size_t all,
                             bool static_graph);

}  // namespace ddp
