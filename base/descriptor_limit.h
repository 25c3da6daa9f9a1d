// SPDX-License-Identifier: Apache-2.0
// The limit on open files and sockets of this process.
#pragma once

#include <cstddef>
#include <string>

namespace ddp {

// Raises the soft limit as far as is useful, at most to the hard limit. Rank 0 has a connection to
// every other rank, and MPI has one to each of its peers. The usual soft limit of 1024 exists only
// for select(2).
void raise_descriptor_limit() noexcept;

// One sentence for rank 0, to which `missing` of `others` ranks have not connected.
std::string out_of_descriptors(std::size_t missing, std::size_t others);

}  // namespace ddp
