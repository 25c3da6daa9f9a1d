// SPDX-License-Identifier: Apache-2.0
// Runs the user's command after each checkpoint, for example to upload it. Used on rank 0 only.
//
// Note [Commands after checkpoints]
// A command never stops or delays training: it runs in a process of its own, which a thread
// watches. One command runs at a time. If checkpoints come faster than commands end, only the
// newest of them waits for its turn, so neither processes nor checkpoints pile up. Retention keeps
// the checkpoints whose command runs or waits (in_use). The shell gets the path in a variable,
// never as a part of the command, so that no name of a directory can become a part of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/subprocess.h"

namespace ddp::train {

class AfterSave {
 public:
  // `log`: the file to which the output of the commands is appended. Commands that run longer than
  // `limit` are killed.
  AfterSave(std::string command, std::chrono::duration<double> limit, std::filesystem::path log);
  AfterSave(const AfterSave&) = delete;
  AfterSave& operator=(const AfterSave&) = delete;
  // Kills a running command.
  ~AfterSave();

  // Runs the command for a checkpoint that has just been committed, with SLURM_DDP_CHECKPOINT (its
  // path) and SLURM_DDP_STEP in its environment, as soon as the previous command has ended.
  void run(const std::filesystem::path& checkpoint, std::uint64_t step);
  // Whether a command for this step runs or waits. May be called from any thread.
  bool in_use(std::uint64_t step) const;
  // Sentences about commands that failed, were killed or left out since the last call.
  std::vector<std::string> take_messages();

  // The step whose command runs or waits, the newest if there are two; nullopt if there is none.
  std::optional<std::uint64_t> unfinished() const;
  // Waits until no command runs or waits, or until `time` has passed. Returns whether none does.
  bool wait(std::chrono::milliseconds time);
  // Kills the running command and leaves out the waiting one.
  void stop();

 private:
  struct Work {
    std::filesystem::path checkpoint;
    std::uint64_t step = 0;
  };

  void work();
  std::string run_one(const Work& work);
  std::string append_to_log(const Work& work, const std::string& result, const std::string& output);

  const std::string command_;
  const std::chrono::duration<double> limit_;
  const std::filesystem::path log_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Work> running_;
  std::optional<Work> waiting_;
  std::vector<std::string> messages_;
  bool said_skipped_ = false;
  bool said_log_ = false;  // of the thread
  bool stopping_ = false;
  std::thread thread_;  // starts with the first command
};

// "exit status 3", "killed after 60 min", "killed by a signal"; empty if the command succeeded.
std::string failure_of(const SubprocessOutput& output, double seconds);

}  // namespace ddp::train
