// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/starting_point.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/errors.h"

namespace ddp::train {
namespace {

// Collective. Whether the newest checkpoint is in the directory.
bool has_newest(const std::filesystem::path& directory, comm::Group& group,
                const Checkpointer& checkpointer) {
  int there = 0;
  if (group.rank() == 0) {
    std::error_code ignored;
    there = std::filesystem::equivalent(checkpointer.newest().parent_path(), directory, ignored)
                ? 1
                : 0;
  }
  return group.all_reduce_value(there, comm::ReduceOp::max) != 0;
}

}  // namespace

void keep_starting_point(comm::Group& group, Checkpointer& checkpointer, const Position& position,
                         const std::filesystem::path& directory, Progress& progress) {
  if (has_newest(directory, group, checkpointer)) return;
  checkpointer.save(position);
  checkpointer.drain();
  if (has_newest(directory, group, checkpointer)) {
    progress.log(fmt::format("checkpoint: the starting point was saved as {}",
                             checkpointer.newest().string()));
    return;
  }
  throw RuntimeError(fmt::format(
      "the starting point could not be saved in {}, which holds no checkpoint of it; make room "
      "there, or give another --checkpoint-dir",
      directory.string()));
}

}  // namespace ddp::train
