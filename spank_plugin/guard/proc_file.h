// SPDX-License-Identifier: Apache-2.0
// Small files of /proc and of the cgroups.
#pragma once

#include <string>

namespace ddp::guard {

// Returns the first 64 KiB; an empty text if the file cannot be read.
std::string read_proc_file(const std::string& path);

}  // namespace ddp::guard
