// SPDX-License-Identifier: Apache-2.0
// Which processes can share memory.
#pragma once

#include <string>

namespace ddp::comm {

// A key that is the same for processes that share one /dev/shm. It identifies the boot of the
// machine and the file system mounted there, which differs between containers on one machine.
std::string machine_key();

}  // namespace ddp::comm
