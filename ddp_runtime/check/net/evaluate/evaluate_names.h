// SPDX-License-Identifier: Apache-2.0
// Checks that all nodes resolve the nodes' names to the same addresses.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

// The addresses that each node found for each name, by node and then by name.
using Resolutions = std::map<std::string, std::map<std::string, std::vector<std::string>>>;

// The majority counts as right. A node that resolves its own name to loopback addresses only has a
// separate finding, because it announces an address that other nodes cannot use.
std::vector<Finding> evaluate_names(const Resolutions& resolutions);

}  // namespace ddp::check
