// SPDX-License-Identifier: Apache-2.0
// Whether the nodes agree on what their names resolve to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"

namespace ddp::check {

// By asking node, then by name: the addresses returned.
using Resolutions = std::map<std::string, std::map<std::string, std::vector<std::string>>>;

// The majority is taken as right. A node may resolve its own name to loopback addresses only; that
// is reported separately, because the address it then announces is useless to the others.
std::vector<Finding> evaluate_names(const Resolutions& resolutions);

}  // namespace ddp::check
