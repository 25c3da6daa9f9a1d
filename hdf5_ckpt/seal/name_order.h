// SPDX-License-Identifier: Apache-2.0
// The order of checkpoints by their names: checkpoint-500, global_step500, iter_0000500,
// epoch=1-step=500.ckpt.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::ckpt {

struct NumberedName {
  std::string pattern;  // the name with "#" in place of each number
  // Those after the word "step" and the like, then those after "epoch". Names of one pattern have
  // equally many.
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> all;
};

NumberedName numbered_name(std::string_view name);

// Whether an entry of a directory is a checkpoint by its name.
bool is_checkpoint_name(std::string_view name, bool is_directory);

struct NamedCheckpoint {
  std::string name;
  std::int64_t written_ns = 0;
};

// Sorts from the newest to the oldest: names of one pattern by their numbers, because the times of
// copies mean nothing; different patterns (best.ckpt and epoch=3.ckpt) by their times. Times also
// come before numbers that count nothing, such as a loss, if others do.
void sort_newest_first(std::vector<NamedCheckpoint>& checkpoints);

}  // namespace ddp::ckpt
