// SPDX-License-Identifier: Apache-2.0
// Connects all tasks of the step, as a training does: by MPI, or over TCP.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/measure/transport_kind.h"
#include "ddp_runtime/check/net/step/leader.h"

namespace ddp::check {

// Why no MPI connects the tasks of this step, if trainings then connect their ranks over TCP.
std::optional<std::string> reason_for_tcp();
Finding mpi_not_used(const std::string& why);
// An UNKNOWN finding with the reason why MPI was not measured, or the collectives over TCP were
// not.
Finding not_run(TransportKind over, const std::string& why);

// All tasks must be reachable. If there are no findings, all tasks are in one MPI world; otherwise
// MPI must not be used afterwards. `limit`: time limit for MPI_Init and for joining the world.
// `timeout`: time limit for receiving a message after MPI has started.
std::vector<Finding> start_mpi(Leader& leader, std::chrono::milliseconds limit,
                               std::chrono::milliseconds timeout);
// Connects them over TCP, with the same limits. Tasks can still exchange data in pairs afterwards,
// whatever the findings.
std::vector<Finding> connect_over_tcp(Leader& leader, std::chrono::milliseconds limit,
                                      std::chrono::milliseconds timeout);

}  // namespace ddp::check
