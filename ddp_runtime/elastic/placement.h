// SPDX-License-Identifier: Apache-2.0
// Which nodes a generation gets, and in which order.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/elastic/settings.h"

namespace ddp::elastic {

// The switches of each node where they are known, from the top: "core.pod1.leaf3".
using Switches = std::map<std::string, std::string>;

// `usable` in the order of the allocation. Nodes of the previous generation come first. If the
// number of nodes stays, they keep their places, and the nearest replacement takes the place of the
// node that is gone: then ranks, and with them the bits of a sum, stay the same.
// If it changes, the old nodes follow each other in their order. Returns nothing if there are too
// few nodes.
std::vector<std::string> place(const std::vector<std::string>& previous,
                               const std::vector<std::string>& usable, const Settings& settings,
                               const Switches& switches = {});

}  // namespace ddp::elastic
