// SPDX-License-Identifier: Apache-2.0
// The end of a run whose last command after a checkpoint still runs.
#pragma once

#include "ddp_runtime/train/checkpoint/after_save.h"
#include "ddp_runtime/train/checkpoint/write/save_context.h"

namespace ddp::train {

// Collective. Waits until no command runs any more, at most until options.after_save_limit_seconds;
// a process that must exit, or is `leaving`, waits only briefly. `commands`: rank 0's. Then the
// command is killed, with a warning.
void finish_commands(const SaveContext& context, AfterSave* commands, bool leaving);

// On rank 0: says what has happened to commands since the last call.
void report_commands(const SaveContext& context, AfterSave& commands);

}  // namespace ddp::train
