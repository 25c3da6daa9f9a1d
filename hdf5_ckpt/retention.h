#pragma once
// Deleting old checkpoints and the leftovers of dead writers. Deletion is a rename to
// .trash-step-N.<owner> (from then on no reader sees it), a fsync, and only then the unlinking: a
// crash in the middle never leaves half a checkpoint under its final name.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/file_ops.h"
#include "hdf5_ckpt/owner_tag.h"

namespace ddp::ckpt {

struct RetentionPolicy {
  std::size_t keep_last = 3;  // at least 1
  // The step that the caller saved last. Later ones belong to somebody else: they neither count nor
  // are deleted, and so this one never is, either.
  std::optional<std::uint64_t> newest = std::nullopt;
  // Asked while checkpoints are read: true ends apply(), with what it has done so far.
  std::function<bool()> stop = {};
};

struct RetentionReport {
  std::vector<std::uint64_t> removed;  // steps
  std::vector<std::string> notes;      // damaged ones found, deletions that failed
};

// Remembers which checkpoints this process has verified, so that each is read back only once.
class Retention {
 public:
  Retention(const std::filesystem::path& root, OwnerTag owner, FileOps& ops = system_file_ops());

  // Spares apply() reading a checkpoint whose bytes the caller has just verified.
  void remember_verified(const Checkpoint& checkpoint);
  void remember_verified(const Manifest& manifest);

  // From now on what was verified is also noted in ROOT/.verified, so that a restarted process does
  // not read it again. Only retention trusts the file; what is loaded is always verified.
  void remember_across_restarts();

  // Deletes whole checkpoints older than the newest `keep_last` whole ones. Whole means verified,
  // every byte. Damaged ones neither count nor are deleted: they are for a person to look at.
  // Throws Error if ROOT cannot be listed or keep_last is 0.
  RetentionReport apply(const RetentionPolicy& policy, const ReadOptions& options = {});

 private:
  void apply(const RetentionPolicy& policy, const ReadOptions& options, RetentionReport& report);
  void write_notes() const;
  bool is_whole(const Candidate& candidate, const ReadOptions& options, RetentionReport& report);
  void remove(const Candidate& candidate, RetentionReport& report);

  std::filesystem::path root_;
  OwnerTag owner_;
  FileOps* ops_;
  std::map<std::uint64_t, std::uint32_t> verified_;  // step -> checksum of the manifest
  bool keeps_notes_ = false;
};

// Removes .tmp-*, .trash-* and .latest.* entries of ROOT whose owner `is_dead`; those of others,
// and names that do not parse, stay. Returns one sentence for each removed or failed.
std::vector<std::string> remove_leftovers(const std::filesystem::path& root,
                                          const OwnerIsDead& is_dead,
                                          FileOps& ops = system_file_ops());

}  // namespace ddp::ckpt
