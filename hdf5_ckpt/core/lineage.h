// SPDX-License-Identifier: Apache-2.0
// The lineage of checkpoints, and the choice of the checkpoint that a run resumes from.
//
// Note [One line of checkpoints]
// The checkpoints step-N of a directory form one sequence: each was reached from the one before it.
// Checkpoints that leave the sequence (a run that resumes from an older step abandons the later
// ones; one that resumes from an abandoned step abandons the other branch) are set aside under
// another name before training starts. So the highest step is always the state of the run,
// retention can count steps, and --resume auto needs no other record. --resume PATH names a
// starting point. A command that is repeated (by a requeue, or by a person after exit status 75)
// must not start there a second time. Each checkpoint therefore lists the starting points of its
// run: a checkpoint that lists PATH was reached from PATH and is ahead of it, or is a copy of it
// that a run saved that had nothing left to train.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::ckpt {

// A checkpoint that was named as a starting point.
struct Origin {
  std::uint64_t step = 0;
  std::uint32_t crc32c = 0;  // of its manifest; distinguishes checkpoints of the same step
  std::string path;          // the given path, made absolute; may have been deleted since

  bool operator==(const Origin&) const = default;
};

// The lineage in a manifest. Checkpoints of older versions do not have one.
struct Lineage {
  std::string run;                      // the same for all checkpoints of one run
  std::optional<std::uint64_t> parent;  // the step of the previous checkpoint
  std::vector<Origin> origins;          // newest last, at most kMaxOrigins
  // Checksums of the manifests of earlier states of this checkpoint, which it has taken the place
  // of: what started from one of them has started from this checkpoint. At most kMaxReplaced.
  std::vector<std::uint32_t> replaced = {};

  bool operator==(const Lineage&) const = default;
};

inline constexpr std::size_t kMaxOrigins = 64;
inline constexpr std::size_t kMaxReplaced = 64;

// Returns 16 random hexadecimal digits.
std::string new_run_name();

// A checkpoint in the directory to resume from.
struct Ancestor {
  std::uint64_t step = 0;
  std::optional<Lineage> lineage;  // nullopt if its manifest has none or cannot be read
};

// The target of --resume PATH.
struct StartingPoint {
  std::string path;                   // absolute
  std::optional<std::uint64_t> step;  // nullopt if the path no longer exists
  std::uint32_t crc32c = 0;           // of its manifest
  std::optional<Lineage> lineage;
  bool inside = false;  // it is in the directory that the run saves to, or in its best/

  bool operator==(const StartingPoint&) const = default;
};

struct ResumePlan {
  enum class From : std::uint8_t {
    newest,  // the newest in the directory that was reached from the starting point
    start,   // the starting point
    nowhere,
  };
  From from = From::nowhere;
  std::uint64_t oldest = 0;              // for `newest`: the first step that was reached from it
  std::vector<std::uint64_t> set_aside;  // steps that the run abandons, highest first
  std::string refusal;                   // for `nowhere`: the reason, and what to do

  bool operator==(const ResumePlan&) const = default;
};

// Chooses the checkpoint to resume from. `there` has all checkpoints of `directory`, in any order.
// Pure.
ResumePlan plan_resume(const StartingPoint& start, std::span<const Ancestor> there,
                       const std::string& directory);

// Returns the lineage of a run that starts at `start`: the same run if it saves to the same
// directory, otherwise a new one.
Lineage lineage_from(const StartingPoint& start, const std::string& new_run, bool same_directory);

}  // namespace ddp::ckpt
