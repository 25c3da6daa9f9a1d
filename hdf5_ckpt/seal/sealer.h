// SPDX-License-Identifier: Apache-2.0
// Seals what a running job leaves behind, without a line in its program.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "hdf5_ckpt/seal/file_tree.h"
#include "hdf5_ckpt/seal/sealing.h"

namespace ddp::ckpt {

// Note [Sealing from outside]
// A checkpoint is sealed if its program says that it has finished (finish_marker.h), nothing in it
// has changed for `quiet`, because other ranks may still write, and the marker is not that of an
// earlier save into the same directory: no file may be much younger. What is sealed is looked at
// again when its marker is younger than its seal.
class Sealer {
 public:
  // Of `root`, which need not exist yet.
  Sealer(std::filesystem::path root, std::chrono::milliseconds quiet, SealOptions options)
      : root_(std::move(root)), quiet_(quiet), options_(std::move(options)) {}

  struct Outcome {
    std::filesystem::path checkpoint;
    SealedContents contents;
    std::string problem;  // why it could not be sealed
  };
  // Looks at all checkpoints, and seals those that are ready at the time `now`. Throws IoError if
  // the directory cannot be listed.
  std::vector<Outcome> look(Clock::time_point now);

  // Whether the last look saw one that is not sealed and had changed not long before.
  bool is_waiting() const noexcept { return is_waiting_; }
  // Those without a seal, of which nothing says that they have finished.
  std::vector<std::filesystem::path> unfinished() const;

 private:
  struct Seen {
    FileTree tree;
    Clock::time_point since;
    std::optional<Clock::time_point> failed;  // as it is
  };
  // Whether it has not changed for `quiet`.
  bool is_quiet(const std::filesystem::path& checkpoint, Clock::time_point now);
  // Whether the marker is there and that of the last save.
  bool has_finished(const std::filesystem::path& checkpoint) const;
  bool may_try(const std::filesystem::path& checkpoint, Clock::time_point now) const;
  Outcome seal(const std::filesystem::path& checkpoint);
  std::optional<Outcome> look_at(const std::filesystem::path& checkpoint, Clock::time_point now);

  std::filesystem::path root_;
  std::chrono::milliseconds quiet_;
  SealOptions options_;
  std::map<std::filesystem::path, Seen> seen_;  // without a seal, or saved again
  bool is_waiting_ = false;
};

}  // namespace ddp::ckpt
