// SPDX-License-Identifier: Apache-2.0
// Reads the inputs of plan_resume() (lineage.h) from the disk, and carries out the plan.

#include "hdf5_ckpt/directory/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/io/retry.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using Accept = std::function<void(const Checkpoint&)>;

constexpr std::size_t kMaxNamed = 5;

std::vector<Ancestor> ancestors_in(const CheckpointDirectory& directory) {
  std::vector<Ancestor> found;
  for (const Candidate& candidate : directory.candidates()) {
    try {
      found.push_back({candidate.step, with_retries(directory.retry().unit, [&] {
                         return Checkpoint::open(candidate.path).manifest().lineage;
                       })});
    } catch (const DamagedError&) {
      found.push_back({candidate.step, std::nullopt});
    }
  }
  return found;
}

bool is_best_directory(const fs::path& path) {
  return path.filename() == kBestName;
}

bool is_inside(const fs::path& path, const CheckpointDirectory& directory) {
  std::error_code ignored;
  const fs::path parent = path.parent_path();
  if (fs::equivalent(parent, directory.root(), ignored)) return true;
  return is_best_directory(parent) &&
         fs::equivalent(parent.parent_path(), directory.root(), ignored);
}

// True only if the path is certainly missing: a path that cannot be inspected is opened, which
// reports the reason.
bool is_missing(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::not_found;
}

void refuse_directory_of_checkpoints(const fs::path& path) {
  const auto inside = CheckpointDirectory(path).candidates();
  if (inside.empty() || !is_missing(path / kManifestName)) return;
  throw MismatchError(
      fmt::format("'{}' is a directory of checkpoints; name one of them, such as '{}'",
                  path.string(), inside.front().path.string()));
}

void refuse_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  if (!is_missing(path.parent_path() / kManifestName))
    throw MismatchError(fmt::format("'{}' is one file of a checkpoint; name its directory '{}'",
                                    path.string(), path.parent_path().string()));
  throw MismatchError(
      fmt::format("'{}' is a file, not a checkpoint; to start from the weights in it, use "
                  "--init-from",
                  path.string()));
}

StartingPoint look_at(const fs::path& path, const CheckpointDirectory* directory) {
  StartingPoint start;
  start.path = path.string();
  if (directory != nullptr) start.inside = is_inside(path, *directory);
  if (is_missing(path)) return start;
  refuse_file(path);
  refuse_directory_of_checkpoints(path);
  const RetryPolicy retry = directory != nullptr ? directory->retry() : RetryPolicy{};
  const Checkpoint checkpoint = with_retries(retry.unit, [&] { return Checkpoint::open(path); });
  start.step = checkpoint.manifest().step;
  start.crc32c = checkpoint.manifest().crc32c;
  start.lineage = checkpoint.manifest().lineage;
  const auto named = step_of_directory(path.filename().string());
  if (named && *named != *start.step)
    throw DamagedError(
        fmt::format("checkpoint '{}': its manifest says step {}", path.string(), *start.step));
  return start;
}

// Returns the resumption of a run that continues its own sequence.
Resumption going_on(Checkpoint checkpoint, std::vector<std::string> notes) {
  Lineage lineage = checkpoint.manifest().lineage.value_or(Lineage{});
  if (lineage.run.empty()) lineage.run = new_run_name();
  lineage.parent = checkpoint.manifest().step;
  lineage.replaced.clear();
  return {std::move(checkpoint), std::move(lineage), std::move(notes), {}, true};
}

[[noreturn]] void throw_none_is_whole(const fs::path& root, const std::vector<std::string>& why) {
  const auto listed = static_cast<std::ptrdiff_t>(std::min(why.size(), kMaxNamed));
  throw Error(fmt::format(
      "none of the {} checkpoints in '{}' is whole: {}; to start from scratch anyway, move them "
      "away or choose another directory",
      why.size(), root.string(), fmt::join(why.begin(), why.begin() + listed, "; ")));
}

// Throws instead of starting from scratch beside checkpoints that were set aside, because the user
// probably did not intend that.
void refuse_if_all_are_set_aside(const CheckpointDirectory& directory) {
  for (const std::string& name : names_in_directory(system_file_ops(), directory.root())) {
    if (!name.starts_with(kSuperseded)) continue;
    throw MismatchError(fmt::format(
        "'{}' holds only checkpoints that were set aside when a run started from an older one "
        "('{}'); give the same --resume PATH again, or rename the one to resume from to step-N",
        directory.root().string(), name));
  }
}

}  // namespace

std::optional<Resumption> resume_newest(const CheckpointDirectory& directory,
                                        const Accept& accept) {
  auto [checkpoint, skipped] = directory.newest_accepted(accept);
  if (checkpoint) return going_on(std::move(*checkpoint), std::move(skipped));
  if (!skipped.empty()) throw_none_is_whole(directory.root(), skipped);
  refuse_if_all_are_set_aside(directory);
  return std::nullopt;
}

Resumption resume_path(const CheckpointDirectory* directory, const fs::path& named,
                       const Accept& accept) {
  const fs::path path = absolute_directory(named);
  const StartingPoint start = look_at(path, directory);
  std::vector<Ancestor> there;
  if (directory != nullptr) there = ancestors_in(*directory);
  const ResumePlan plan =
      plan_resume(start, there, directory != nullptr ? directory->root().string() : "");
  std::vector<std::string> notes;
  if (plan.from == ResumePlan::From::nowhere) throw MismatchError(plan.refusal);
  if (plan.from == ResumePlan::From::newest) {
    const auto at_least = start.step ? std::optional(plan.oldest) : std::nullopt;
    auto [checkpoint, skipped] = directory->newest_accepted(accept, at_least);
    notes = std::move(skipped);
    if (checkpoint) {
      notes.push_back(
          fmt::format("this run has already started from '{0}' and continues from its latest "
                      "checkpoint; to start from there again, set the later ones aside: ddp-ckpt "
                      "rollback '{0}'",
                      path.string()));
      return going_on(std::move(*checkpoint), std::move(notes));
    }
    if (!start.step) throw_none_is_whole(directory->root(), notes);
  }
  Checkpoint checkpoint = Checkpoint::open(path);
  accept(checkpoint);
  Lineage lineage = lineage_from(start, new_run_name(), !there.empty());
  return {std::move(checkpoint), std::move(lineage), std::move(notes), plan.set_aside,
          start.inside && !is_best_directory(path.parent_path())};
}

}  // namespace ddp::ckpt
