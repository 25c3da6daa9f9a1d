// How many files and sockets this process may open.
#pragma once

namespace ddp::comm {

// Rank 0 has a connection with every other rank, and MPI one with each it talks to; the usual limit
// of 1024 is a leftover of select(2). Raises the soft limit as far as the hard one allows.
void raise_descriptor_limit() noexcept;

}  // namespace ddp::comm
