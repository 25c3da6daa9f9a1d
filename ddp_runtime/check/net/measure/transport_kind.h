// SPDX-License-Identifier: Apache-2.0
// The transports over which pairs are measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::check {

enum class TransportKind : std::uint8_t { tcp, verbs, nccl, mpi };

// The name in messages and reports: "tcp", "verbs", "nccl", "mpi".
std::string name_of(TransportKind stage);

// The name in text for people: "TCP", "RDMA", "NCCL", "MPI".
std::string title_of(TransportKind stage);

// Parses a name such as "tcp". Throws RuntimeError if the name is unknown.
TransportKind stage_named(std::string_view name);

}  // namespace ddp::check
