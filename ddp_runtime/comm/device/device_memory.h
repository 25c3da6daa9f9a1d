// SPDX-License-Identifier: Apache-2.0
// The memory of a GPU that a group takes beside the tensors of the program.
#pragma once

#include <cstddef>

namespace ddp::comm {

class Group;

// Bytes of the GPU that are in use by allocate() of this group and of its parts, with what is left
// of the pieces that they are in; 0 for a group of hosts.
std::size_t device_memory_of(const Group& group);

}  // namespace ddp::comm
