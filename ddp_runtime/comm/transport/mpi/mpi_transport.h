// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages over MPI. Each transport has its own communicator, so that its messages
// never match the program's.
#pragma once

#include <memory>

#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::comm {

// Collective over MPI_COMM_WORLD. MPI must outlive the transport. `failures` decides whether the
// destructor can free the communicator.
std::unique_ptr<Transport> make_mpi_transport(const FailureState& failures);

}  // namespace ddp::comm
