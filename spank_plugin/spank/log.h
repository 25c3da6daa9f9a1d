// SPDX-License-Identifier: Apache-2.0
// The plugin's messages. Each starts with "ddp: ", so that users know its origin, and is one line
// of printable ASCII, whatever it quotes.
#pragma once

#include <string>

namespace ddp::spank {

// Writes to the user's standard error (srun, salloc, sbatch, a task) or to the daemon's log.
void log_line(const std::string& text) noexcept;

// Like log_line, with the prefix "error:" of SLURM.
void log_error(const std::string& text) noexcept;

}  // namespace ddp::spank
