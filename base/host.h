// SPDX-License-Identifier: Apache-2.0
// What this host says of itself.
#pragma once

#include <string>

namespace ddp {

// The kernel's name of it, as `hostname` prints it.
std::string host_name();

// Its clock: seconds since 1970. May jump.
double unix_seconds();

}  // namespace ddp
