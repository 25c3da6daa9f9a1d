// SPDX-License-Identifier: Apache-2.0
// A directory of checkpoints, ROOT/step-00012345/. Saves a checkpoint so that it exists either
// completely or not at all, and finds the newest complete one.
//
// Note [Crash safety]
// A checkpoint is built in ROOT/.tmp-step-N.<owner>/, which readers ignore, and appears by a single
// rename. The steps in order, and the purpose of each:
//   every file written and fsynced      its bytes survive a power loss
//   manifest.json written and fsynced   says what a whole checkpoint is; carries all checksums
//   fsync of the temporary directory    the names in it survive
//   rename to step-N, never replacing   readers see nothing or all; two writers cannot mix
//   fsync of ROOT                       the name survives: only now does commit() return
//   `latest` replaced                   a hint for people and scripts; the loader does not use it
// Guarantee: when save() or commit() returns, the checkpoint survives SIGKILL, a full disk and, on
// a file system that honors fsync, loss of power; a torn or bit-flipped checkpoint is never loaded.
// An exception means that this checkpoint was not created and that earlier ones are untouched.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/file_ops.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/core/owner_tag.h"
#include "hdf5_ckpt/read/checkpoint.h"
#include "hdf5_ckpt/write/writer.h"

namespace ddp::ckpt {

// Returns "step-00012345", with at least eight digits.
std::string step_directory_name(std::uint64_t step);

// The action if step-N already exists when a save of step N commits. A damaged one is always
// replaced (and kept as .broken-step-N.<owner>), because otherwise a resumed job could never get
// past it.
enum class IfExists {
  fail,       // keep a whole one, and commit() throws
  replace,    // exchange a whole one for the new one atomically, then delete it
  set_aside,  // as replace, but keep it as .superseded-step-N.<owner>
};

// The unit of the delays between retries: 0.5, 1, 2, 4 and 8 times this, then an error.
struct RetryPolicy {
  std::chrono::milliseconds unit{1000};
};

struct SaveOptions {
  WriteOptions write = {};
  IfExists if_exists = IfExists::fail;
  bool read_back = false;  // verify every byte from the disk before the rename
  // Called just before a finished checkpoint gets its final name; an exception from it fails the
  // save.
  std::function<void()> before_publishing = {};
  RetryPolicy retry = {};  // for checkpoints that are temporarily unreadable while loading
};

// Identifies one save on all ranks. The rank that began it sends it to the others.
struct SaveId {
  std::uint64_t step = 0;
  OwnerTag owner;

  nlohmann::json to_json() const;
  static SaveId from_json(const nlohmann::json& json);  // throws Error
};

struct CheckpointInfo {
  std::uint64_t epoch = 0;
  std::uint64_t world_size = 1;
  std::string run_id;
  nlohmann::json state = nlohmann::json::object();  // any small object; no NaN or infinity
  std::optional<Lineage> lineage = std::nullopt;    // see Note [One line of checkpoints]
  bool permanent = false;                           // retention never deletes it
  // A whole checkpoint of the same step is an earlier state of this one, and is deleted: not in the
  // manifest.
  bool replaces_step = false;
};

// The manifest of these files, without a checksum. They may break its rules: see
// serialize_manifest().
Manifest manifest_of(const SaveId& id, std::span<const FileRecord> records,
                     const CheckpointInfo& info);

struct Saved {
  std::filesystem::path path;
  Manifest manifest;
  std::vector<std::string> notes;  // problems that did not stop the save
};

struct Candidate {
  std::uint64_t step = 0;
  std::filesystem::path path;

  bool operator==(const Candidate&) const = default;
};

// The result of a search from the newest checkpoint to older ones.
struct Found {
  std::optional<Checkpoint> checkpoint;  // the newest that was accepted
  std::vector<std::string> skipped;      // one sentence for each skipped checkpoint
};

struct Loaded {
  Checkpoint checkpoint;
  std::vector<std::string> skipped;  // one sentence for each skipped newer checkpoint
};

// Methods may be called from any thread; calls for one SaveId must not overlap, except
// write_shard() with different file names.
class CheckpointDirectory {
 public:
  // Does not access the disk yet. `ops` must outlive the object.
  explicit CheckpointDirectory(const std::filesystem::path& root, SaveOptions options = {},
                               FileOps& ops = system_file_ops());

  const std::filesystem::path& root() const noexcept { return root_; }
  const RetryPolicy& retry() const noexcept { return options_.retry; }

  // ---- saving from one process -------------------------------------------------------------
  // begin + write_shard("model.h5") + commit. Throws Error; no files are then left, unless their
  // removal failed too.
  Saved save(std::uint64_t step, const OwnerTag& owner, std::span<const ArrayView> arrays,
             const CheckpointInfo& info);

  // ---- saving from many ranks --------------------------------------------------------------
  // Call on one rank. Creates ROOT and the temporary directory. Send the result to all ranks.
  SaveId begin(std::uint64_t step, const OwnerTag& owner);

  // Call on every rank that has data. Writes ROOT/.tmp-.../<file_name> ("rank-00003-of-00008.h5").
  // An array may be this rank's part of a larger one (ArrayView::part): the parts of all ranks must
  // cover it, each element exactly once, or commit() throws. On return the bytes are durable.
  // Gather the records on the committing rank; if any rank threw, no rank commits and one rank
  // calls abandon(). `attributes`: see write_hdf5_file.
  FileRecord write_shard(const SaveId& id, const std::string& file_name,
                         std::span<const ArrayView> arrays,
                         const nlohmann::json& attributes = nlohmann::json::object());

  // Call instead of write_shard() for a shard that was written elsewhere (LocalStore): copies its
  // file `from`. On return the bytes are durable. Throws DamagedError or UnreadableError if `from`
  // cannot be read. Does not compare checksums; read_back() does.
  void copy_shard(const SaveId& id, const FileRecord& record, const std::filesystem::path& from);

  // Reads a shard that this process has written back from the disk. Throws DamagedError if any byte
  // differs from the written one.
  void read_back(const SaveId& id, const FileRecord& record, const ReadOptions& options = {}) const;

  // Call on one rank, after all records have arrived. Throws Error and removes the temporary
  // directory.
  Saved commit(const SaveId& id, std::span<const FileRecord> records, const CheckpointInfo& info);

  // Removes the leftovers of a failed save. Never throws; remove_leftovers() removes the rest
  // later.
  void abandon(const SaveId& id) noexcept;

  // Removes whole or damaged checkpoints from the sequence: each is renamed to
  // .superseded-step-N.<owner>, which readers ignore, and `latest` is set to `newest`, or removed
  // if that is empty. Node-local saves, which may follow from them, are no longer used. Returns the
  // new names. Throws IoError; checkpoints renamed before the failure
  // stay set aside.
  std::vector<std::filesystem::path> set_aside(std::span<const std::uint64_t> steps,
                                               std::optional<std::uint64_t> newest,
                                               const OwnerTag& owner);

  // The same for all checkpoints later than `step`; `latest` is set to the newest remaining
  // checkpoint.
  std::vector<std::filesystem::path> set_aside_later_than(std::uint64_t step,
                                                          const OwnerTag& owner);

  // Node-local saves and copies in memory are no longer used: the next run resumes from the newest
  // checkpoint here. There may be none. Throws IoError.
  void forget_local_saves();

  // ---- loading -----------------------------------------------------------------------------
  // Returns every directory named step-N, newest (highest step) first, complete or not. For ranks
  // that must agree on one: all ranks try the same list in order until Checkpoint::open + read_into
  // succeeds on all.
  std::vector<Candidate> candidates() const;

  // Fills `targets` from the newest checkpoint whose bytes are correct, skipping damaged ones.
  // Retries a temporarily unreadable one and then throws UnreadableError, because it may be whole.
  // Another process may save and remove checkpoints meanwhile: if all listed ones have disappeared,
  // the directory is read again. Returns nullopt if ROOT contains no checkpoint at all. Throws
  // Error if it contains some and none is whole (starting from scratch must be a deliberate
  // decision), MismatchError if the newest whole one does not fit.
  std::optional<Loaded> load_newest(std::span<const MutableArrayView> targets,
                                    Match match = Match::exact,
                                    const ReadOptions& options = {}) const;

  // Searches as load_newest() does, but with the caller's reader: `accept` throws DamagedError to
  // skip a checkpoint. Considers only the step `at_least` and later ones.
  Found newest_accepted(const std::function<void(const Checkpoint&)>& accept,
                        std::optional<std::uint64_t> at_least = std::nullopt) const;

  // Searches as load_newest() does, but only verifies every byte of the result instead of keeping
  // it in memory.
  std::optional<Loaded> newest_verified(const ReadOptions& options = {}) const;

 private:
  Saved write_and_publish(const SaveId& id, std::span<const FileRecord> records,
                          const CheckpointInfo& info);
  void publish(const SaveId& id, IfExists if_exists, Saved& saved);
  void leave_hint(std::uint64_t step, const OwnerTag& owner);
  std::filesystem::path free_name(std::string_view kind, std::uint64_t step,
                                  const OwnerTag& owner) const;

  std::filesystem::path root_;
  SaveOptions options_;
  FileOps* ops_;
};

// The directory below a run's checkpoint directory that holds its best checkpoint. It is a
// checkpoint directory, too.
inline constexpr std::string_view kBestName = "best";

// Returns `root` and the directory above, whether they exist or not.
std::array<std::filesystem::path, 2> with_best_directory(const std::filesystem::path& root);

// Creates a directory and its missing parents so that the names survive a loss of power. Throws
// IoError.
void make_durable_directory(const std::filesystem::path& directory);

}  // namespace ddp::ckpt
