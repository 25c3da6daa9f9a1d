// The ways in which pairs are measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::check {

enum class Stage : std::uint8_t { tcp, verbs, nccl, mpi };

// As messages and reports name it: "tcp", "verbs", "nccl", "mpi".
std::string name_of(Stage stage);

// For people: "TCP", "RDMA", "NCCL", "MPI".
std::string title_of(Stage stage);

// Of such a name. Throws RuntimeError for another one.
Stage stage_named(std::string_view name);

}  // namespace ddp::check
