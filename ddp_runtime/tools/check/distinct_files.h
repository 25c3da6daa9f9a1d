// SPDX-License-Identifier: Apache-2.0
// Options whose files must differ: two documents cannot share one file.
#pragma once

#include <string>
#include <vector>

namespace ddp::tools {

struct FileOfOption {
  std::string option;  // e.g. "--json"
  std::string path;    // empty: not given
};

// Throws UsageError if two options name the same file. Devices and pipes below /dev may be shared:
// what is written there is not replaced. Compares the texts of the paths only, so that all tasks of
// a step agree; does not follow symbolic links.
void require_distinct(const std::vector<FileOfOption>& files);

}  // namespace ddp::tools
