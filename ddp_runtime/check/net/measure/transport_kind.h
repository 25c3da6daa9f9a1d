// The ways in which pairs are measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::check {

enum class TransportKind : std::uint8_t { tcp, verbs, nccl, mpi };

// As messages and reports name it: "tcp", "verbs", "nccl", "mpi".
std::string name_of(TransportKind stage);

// For people: "TCP", "RDMA", "NCCL", "MPI".
std::string title_of(TransportKind stage);

// Of such a name. Throws RuntimeError for another one.
TransportKind stage_named(std::string_view name);

}  // namespace ddp::check
