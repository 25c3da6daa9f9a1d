// SPDX-License-Identifier: Apache-2.0
// mpirun starts its own daemons with srun. Such a step is not a training job: the daemons' children
// are, and they would inherit the daemons' ranks.
#pragma once

#include <string_view>

namespace ddp::launch {

// True if the program of a step (its argv[0], with or without a path) is another launcher's daemon.
bool is_launcher_daemon(std::string_view program) noexcept;

}  // namespace ddp::launch
