// SPDX-License-Identifier: Apache-2.0
// The options of when to save and what to keep, as text.
#pragma once

#include <string>

#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

// Sets the members of `options` that decide when a run saves: "epoch", a number of steps, a time
// such as "90s", "10min" or "1h30min", or "auto". Throws UsageError for other texts.
void set_checkpoint_interval(CheckpointOptions& options, const std::string& text);

// Sets the members of `options` that decide when a run makes copies in the memory of nodes: a
// number of steps, a time, or "auto"; "" for none. Throws UsageError for other texts.
void set_memory_interval(CheckpointOptions& options, const std::string& text);

// Sets the members of `options` that decide which checkpoints are kept for good: a number of steps,
// or of epochs, such as "5epochs". Throws UsageError for other texts.
void set_keep_every(CheckpointOptions& options, const std::string& text);

// "the last 3, every 1,000 steps for good and the best".
std::string kept_checkpoints_text(const CheckpointOptions& options);

// "epoch", "2 steps", "10 min"; a sequence of them if a program has set several. With "auto":
// "Young interval".
std::string checkpoint_interval_text(const CheckpointOptions& options);

// The same of copies in memory; empty if there are none.
std::string memory_interval_text(const CheckpointOptions& options);

}  // namespace ddp::train
