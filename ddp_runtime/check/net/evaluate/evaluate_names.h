// Whether the nodes agree on what the names of the nodes mean.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"

namespace ddp::check {

// By asking node, then by name: the addresses it got.
using Resolutions = std::map<std::string, std::map<std::string, std::vector<std::string>>>;

// The majority is right. A node may know itself by loopback addresses only, which is reported as
// such: what it announces as its address is then of no use to the others.
std::vector<Finding> evaluate_names(const Resolutions& resolutions);

}  // namespace ddp::check
