// Files that a tool writes for others to read: whole or not at all.
#pragma once

#include "ddp_runtime/comm/output_file.h"

namespace ddp::tools {

using comm::write_file;

}  // namespace ddp::tools
