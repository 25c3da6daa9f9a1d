// SPDX-License-Identifier: Apache-2.0
// Deletes old checkpoints and the leftovers of dead writers. A checkpoint is renamed to
// .trash-step-N.<owner> (from then on no reader sees it), then comes an fsync, and only then are
// its files unlinked: a crash in the middle never leaves half a checkpoint under its final name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/core/file_ops.h"
#include "hdf5_ckpt/core/owner_tag.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::ckpt {

struct RetentionPolicy {
  std::size_t keep_last = 3;  // at least 1
  // The step that the caller saved last, which is never deleted. Later steps belong to another run,
  // so they are neither counted nor deleted.
  std::optional<std::uint64_t> newest = std::nullopt;
  // Whether something outside still needs the checkpoint of a step, which is then not deleted this
  // time.
  std::function<bool(std::uint64_t step)> in_use = {};
  // Polled while checkpoints are read. If it returns true, apply() stops; its deletions so far
  // stay.
  std::function<bool()> stop = {};
};

struct RetentionReport {
  std::vector<std::uint64_t> removed;  // steps
  std::vector<std::string> notes;      // damaged checkpoints found, deletions that failed
};

// Remembers which checkpoints this process has verified, so that each is read back only once.
class Retention {
 public:
  Retention(const std::filesystem::path& root, OwnerTag owner, FileOps& ops = system_file_ops());

  // Records that the caller has just verified the bytes of a checkpoint, so that apply() does not
  // read them again.
  void remember_verified(const Checkpoint& checkpoint);
  void remember_verified(const Manifest& manifest);

  // Records verified checkpoints in ROOT/.verified from now on, so that a restarted process does
  // not read them again. Only retention trusts the file; loading always verifies.
  void remember_across_restarts();

  // Deletes whole checkpoints older than the newest `keep_last` whole ones, where whole means that
  // every byte was verified. Damaged ones are neither counted nor deleted, so that a person can
  // inspect them. Permanent ones (Manifest::permanent) are counted, but never deleted. Throws Error
  // if ROOT cannot be listed or keep_last is 0.
  RetentionReport apply(const RetentionPolicy& policy, const ReadOptions& options = {});

 private:
  void apply(const RetentionPolicy& policy, const ReadOptions& options, RetentionReport& report);
  void write_notes() const;
  void remove_all(const std::vector<Candidate>& surplus, RetentionReport& report);
  bool is_permanent(const Candidate& candidate);
  bool is_whole(const Candidate& candidate, const ReadOptions& options, RetentionReport& report);
  void remove(const Candidate& candidate, RetentionReport& report);

  std::filesystem::path root_;
  OwnerTag owner_;
  FileOps* ops_;
  std::map<std::uint64_t, std::uint32_t> verified_;  // step -> checksum of the manifest
  // Steps known to be permanent, so that a directory with thousands of them is read only once.
  std::set<std::uint64_t> permanent_;
  bool keeps_notes_ = false;
};

// Removes .tmp-*, .trash-* and .latest.* entries of ROOT for whose owner `is_dead` returns true.
// Entries of other owners, and names that do not parse, stay. Returns one sentence for each removal
// and each failure.
std::vector<std::string> remove_leftovers(const std::filesystem::path& root,
                                          const OwnerIsDead& is_dead,
                                          FileOps& ops = system_file_ops());

}  // namespace ddp::ckpt
