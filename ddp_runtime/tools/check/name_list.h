// SPDX-License-Identifier: Apache-2.0
// Lists of node names, one per line, as written by --exclude-file.
#pragma once

#include <string>
#include <vector>

namespace ddp::tools {

// The names in all these files. Throws UsageError if a file cannot be read or contains anything
// else.
std::vector<std::string> read_names(const std::vector<std::string>& files);

}  // namespace ddp::tools
