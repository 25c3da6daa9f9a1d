#pragma once
// Where a checkpoint comes from, and which one a run that is told to resume goes on from.
//
// Note [One line of checkpoints]
// The checkpoints step-N of a directory are one line: each was reached from the one before it. What
// leaves the line (a run that resumes from an older step abandons the later ones) is set aside
// under another name before anything is trained. So the highest step is always where the run
// stands, retention can count steps, and --resume auto needs no memory.
// --resume PATH names a starting point, and a command that is given again (by a requeue, or by a
// person after exit status 75) must not start there a second time. Each checkpoint therefore lists
// the starting points of its run: one that lists PATH came from it and is ahead of it.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::ckpt {

// A checkpoint that somebody named as a starting point.
struct Origin {
  std::uint64_t step = 0;
  std::uint32_t crc32c = 0;  // of its manifest: another checkpoint of the same step has another one
  std::string path;          // as it was named, absolute: it may have been deleted since

  bool operator==(const Origin&) const = default;
};

// What a manifest says of it. Checkpoints of older versions have none.
struct Lineage {
  std::string run;                      // the same for all checkpoints of one run
  std::optional<std::uint64_t> parent;  // the step of the checkpoint before
  std::vector<Origin> origins;          // the newest last, at most kMaxOrigins

  bool operator==(const Lineage&) const = default;
};

inline constexpr std::size_t kMaxOrigins = 64;

// 16 random hexadecimal digits.
std::string new_run_name();

// A checkpoint of the directory that is to be resumed.
struct Ancestor {
  std::uint64_t step = 0;
  std::optional<Lineage> lineage;  // none if its manifest has none or cannot be read
};

// What --resume PATH names.
struct StartingPoint {
  std::string path;                   // absolute
  std::optional<std::uint64_t> step;  // none: there is nothing under that path any more
  std::uint32_t crc32c = 0;           // of its manifest
  std::optional<Lineage> lineage;
  bool inside = false;  // it lies in the directory that the run saves to, or in best/ there

  bool operator==(const StartingPoint&) const = default;
};

struct ResumePlan {
  enum class From : std::uint8_t {
    newest,  // the newest of the directory that is later than the starting point
    start,   // the starting point
    nowhere,
  };
  From from = From::nowhere;
  std::vector<std::uint64_t> set_aside;  // steps that the run leaves behind, the highest first
  std::string refusal;                   // with kNowhere: why, and what to do

  bool operator==(const ResumePlan&) const = default;
};

// `there` are all checkpoints of `directory`, in any order. Pure.
ResumePlan plan_resume(const StartingPoint& start, std::span<const Ancestor> there,
                       const std::string& directory);

// The lineage of a run that starts at `start`: it belongs to the same run only if it saves to the
// same directory, and is otherwise a run of its own.
Lineage lineage_from(const StartingPoint& start, const std::string& new_run, bool same_directory);

}  // namespace ddp::ckpt
