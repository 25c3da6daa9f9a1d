// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages over TCP, for ranks that no process manager connects. Two ranks have one
// connection for each group, made when they first need it. Its ends prove that they have the step's
// key (failure/greeting.h); the data behind is neither encrypted nor sealed, like that of MPI and
// NCCL.
#pragma once

#include <chrono>
#include <memory>

#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/transport/tcp/rendezvous.h"
#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::comm {

// Collective over all ranks of the plan. See meet() for its errors. `failures` must outlive the
// transport. A connection that ends is BrokenCollective with Symptom::remote_error.
std::unique_ptr<Transport> make_tcp_transport(const TcpPlan& plan, const FailureState& failures,
                                              std::chrono::milliseconds timeout);
// For a rank that listens already, rank 0 at any port that the plans of the others then have.
std::unique_ptr<Transport> make_tcp_transport(const TcpPlan& plan, Listener listener,
                                              const FailureState& failures,
                                              std::chrono::milliseconds timeout);

}  // namespace ddp::comm
