// SPDX-License-Identifier: Apache-2.0
// The directory in a node's memory where a program that ddp-run starts keeps copies of its state,
// for its next start:
//
//   /dev/shm/slurm-ddp-memory-UID/RUN/in-use     locked by each process that uses the directory
//   /dev/shm/slurm-ddp-memory-UID/RUN/...        the copies
//
// RUN, random, is the same for all starts by one ddp-run, and for no other. Only this user can
// access the directories, and no link is followed below /dev/shm.
//
// Note [Who removes memory]
// Memory outlives processes. The program removes its copies when it has saved its last step to a
// disk, ddp-run removes the directories on all nodes when it ends, and an agent removes that of its
// node when its ddp-run is gone. What remains when all of them are killed at once is removed by the
// next program of this user on the node: nothing has it locked, and it is older than kStaleAfter.
// The age counts from the last copy or the last end of a program on the node, so that a job that is
// between two starts keeps its copies.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "base/file_descriptor.h"

namespace ddp::comm {

// Environment variables: RUN, and a directory to be used instead of /dev/shm.
inline constexpr const char* kRunIdVariable = "DDP_RUN_ID";
inline constexpr const char* kRunMemoryVariable = "DDP_RUN_MEMORY";
// "1": this start is the last one, and only to save the newest copy to a disk.
inline constexpr const char* kRunSaveVariable = "DDP_RUN_SAVE";

inline constexpr std::chrono::hours kStaleAfter{1};

// The id of the ddp-run that started this process; nullopt if none did.
std::optional<std::string> run_id();

// Whether ddp-run has started this process only to save what is in memory.
bool started_to_save();

// Its path on this node, whether it exists or not.
std::filesystem::path run_memory_path(const std::string& id);

// Uses the directory of a run, which no other process removes meanwhile.
class RunMemory {
 public:
  // Creates the directory if there is none. Throws RuntimeError if that is not possible, or if
  // something is in its place that others could change.
  explicit RunMemory(const std::string& id);

  const std::filesystem::path& path() const noexcept { return path_; }
  // Its age counts from now. Ignores errors.
  void touch() const noexcept;

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;
};

// After a use: the age of the directory counts from now, or it is removed if nothing is in it.
void touch_run_memory(const std::string& id) noexcept;
// Removes the directory of a run that does not need it any more, and the user's if it is empty,
// unless another process uses it, for which it waits up to `patience`. Ignores errors: what is left
// becomes stale.
void remove_run_memory(const std::string& id, std::chrono::milliseconds patience = {}) noexcept;
// Removes those of runs that are over.
void remove_stale_run_memory() noexcept;

}  // namespace ddp::comm
