// SPDX-License-Identifier: Apache-2.0
// The plugin's messages. All start with "ddp: ", so that a user knows their origin, and are one
// line of printable ASCII, whatever they quote.
#pragma once

#include <string>

namespace ddp::spank {

// To the user's standard error (srun, salloc, sbatch, a task) or the daemon's log.
void log_line(const std::string& text) noexcept;

// As log_line, with SLURM's "error:" before it.
void log_error(const std::string& text) noexcept;

}  // namespace ddp::spank
