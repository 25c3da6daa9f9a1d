// SPDX-License-Identifier: Apache-2.0
// Recognizes the daemons that mpirun starts with srun. A step of daemons must not get ranks: the
// daemons' children are the training job, and they would inherit the daemons' ranks.
#pragma once

#include <string_view>

namespace ddp::launch {

// Returns true if a step's program (argv[0], with or without a path) is another launcher's daemon.
bool is_launcher_daemon(std::string_view program) noexcept;

}  // namespace ddp::launch
