// SPDX-License-Identifier: Apache-2.0
// Lists of node names, one per line, as written by --exclude-file.
#pragma once

#include <string>
#include <vector>

namespace ddp::tools {

// Returns the names from all files. Throws UsageError if a file cannot be read or contains text
// that is not a node name.
std::vector<std::string> read_names(const std::vector<std::string>& files);

}  // namespace ddp::tools
