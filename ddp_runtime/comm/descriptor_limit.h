// SPDX-License-Identifier: Apache-2.0
// The limit on open files and sockets of this process.
#pragma once

namespace ddp::comm {

// Rank 0 has one connection to every other rank, and MPI one to each peer it talks to. The usual
// limit of 1024 is a leftover of select(2). Raises the soft limit to the hard limit, as far as is
// useful.
void raise_descriptor_limit() noexcept;

}  // namespace ddp::comm
