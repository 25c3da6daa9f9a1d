// Files that a tool writes for other programs: written whole or not at all.
#pragma once

#include "ddp_runtime/comm/output_file.h"

namespace ddp::tools {

using comm::write_file;

}  // namespace ddp::tools
