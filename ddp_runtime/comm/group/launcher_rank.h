// SPDX-License-Identifier: Apache-2.0
// The number of this process among those that a launcher has started, before they are connected.
#pragma once

#include <optional>

namespace ddp::comm {

// nullopt if the variable is not set, or if its value is no number.
std::optional<int> integer_from_environment(const char* name) noexcept;

// Whether mpirun or srun has started this process.
bool has_launcher() noexcept;

// This process's rank according to its launcher, for use before the world is joined; 0 if the
// launcher does not set one.
int rank_from_environment() noexcept;

}  // namespace ddp::comm
