// Lists of node names, one a line, as --exclude-file writes them.
#pragma once

#include <string>
#include <vector>

namespace ddp::tools {

// The names in all these files. Throws UsageError if one cannot be read or holds something else.
std::vector<std::string> read_names(const std::vector<std::string>& files);

}  // namespace ddp::tools
