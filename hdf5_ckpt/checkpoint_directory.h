#pragma once
// A directory of checkpoints, ROOT/step-00012345/: saving one so that it either exists whole or not
// at all, and finding the newest that is whole.
//
// Note [Crash safety]
// A checkpoint is built in ROOT/.tmp-step-N.<owner>/, which no reader looks at, and appears by one
// rename. In order, and what each step is for:
//   every file written and fsynced      its bytes survive a power loss
//   manifest.json written and fsynced   says what a whole checkpoint is; carries all checksums
//   fsync of the temporary directory       the names in it survive
//   rename to step-N, never replacing   readers see nothing or all; two writers cannot mix
//   fsync of ROOT                       the name survives: only now does commit() return
//   `latest` replaced                   a hint for people and scripts; the loader does not use it
// Promise: when save() or commit() returns, the checkpoint survives SIGKILL, a full disk and, on a
// file system that honors fsync, loss of power; a torn or bit-flipped one is never loaded.
// An exception means that this checkpoint was not made and that those before it are untouched.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/array.h"
#include "hdf5_ckpt/checkpoint.h"
#include "hdf5_ckpt/detail/retry.h"
#include "hdf5_ckpt/file_ops.h"
#include "hdf5_ckpt/manifest.h"
#include "hdf5_ckpt/owner_tag.h"
#include "hdf5_ckpt/writer.h"

namespace ddp::ckpt {

// "step-00012345"; at least eight digits.
std::string step_directory_name(std::uint64_t step);

// What to do if step-N is already there when a save of step N commits. A damaged one is always
// replaced (and kept beside as .broken-step-N.<owner>), or a resumed job could not pass it.
enum class IfExists {
  fail,      // a whole one stays and commit() throws
  replace,   // a whole one is exchanged for the new one in one step, then deleted
  set_aside,  // likewise, but kept beside as .superseded-step-N.<owner>
};

struct SaveOptions {
  WriteOptions write = {};
  IfExists if_exists = IfExists::fail;
  bool read_back = false;  // verify every byte from the disk before the rename
  // Called just before a finished checkpoint gets its name; what it throws makes the save fail.
  std::function<void()> before_publishing = {};
  RetryPolicy retry = {};  // with checkpoints that cannot be read just now, when loading
};

// Names one save among all ranks. The rank that began it sends it to the others.
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
  nlohmann::json state = nlohmann::json::object();  // anything small; no NaN or infinity
  std::optional<Lineage> lineage = std::nullopt;    // see Note [One line of checkpoints]
};

struct Saved {
  std::filesystem::path path;
  Manifest manifest;
  std::vector<std::string> notes;  // what did not stop the save but someone should know
};

struct Candidate {
  std::uint64_t step = 0;
  std::filesystem::path path;

  bool operator==(const Candidate&) const = default;
};

// What was found by looking down from the newest.
struct Found {
  std::optional<Checkpoint> checkpoint;  // the newest that was accepted
  std::vector<std::string> skipped;      // one sentence for each that was passed over
};

struct Loaded {
  Checkpoint checkpoint;
  std::vector<std::string> skipped;  // one sentence for each newer one that was passed over
};

// Methods may be called from any thread; calls for one SaveId must not overlap, except
// write_shard() with different file names.
class CheckpointDirectory {
 public:
  // Touches nothing yet. `ops` must outlive the object.
  explicit CheckpointDirectory(const std::filesystem::path& root, SaveOptions options = {},
                               FileOps& ops = system_file_ops());

  const std::filesystem::path& root() const noexcept { return root_; }
  const RetryPolicy& retry() const noexcept { return options_.retry; }

  // ---- saving from one process -------------------------------------------------------------
  // begin + write_shard("model.h5") + commit. Throws Error; then nothing is left behind, unless
  // removing it failed too.
  Saved save(std::uint64_t step, const OwnerTag& owner, std::span<const ArrayView> arrays,
             const CheckpointInfo& info);

  // ---- saving from many ranks --------------------------------------------------------------
  // One rank: makes ROOT and the temporary directory. Send the result to all ranks.
  SaveId begin(std::uint64_t step, const OwnerTag& owner);

  // Every rank that has something: writes ROOT/.tmp-.../<file_name> ("rank-00003-of-00008.h5").
  // An array may be a rank's part of one (ArrayView::part): the parts of all ranks must cover it,
  // each element once, or commit() throws. On return its bytes are durable. Gather the records to
  // the committing rank; if any rank threw, no rank commits and one calls abandon(). `attributes`:
  // see write_hdf5_file.
  FileRecord write_shard(const SaveId& id, const std::string& file_name,
                         std::span<const ArrayView> arrays,
                         const nlohmann::json& attributes = nlohmann::json::object());

  // Reads a shard that this process has written from the disk. Throws DamagedError if a byte of it
  // is not what was written.
  void read_back(const SaveId& id, const FileRecord& record, const ReadOptions& options = {}) const;

  // One rank, after all records have arrived. Throws Error and removes the temporary directory.
  Saved commit(const SaveId& id, std::span<const FileRecord> records, const CheckpointInfo& info);

  // Removes what a failed save has left. Never throws; what cannot be removed stays for
  // remove_leftovers().
  void abandon(const SaveId& id) noexcept;

  // Takes whole or damaged checkpoints out of the line: each becomes .superseded-step-N.<owner>,
  // which nothing looks at, and `latest` says `newest`, or is removed if that is empty. Returns the
  // new names. Throws IoError; those that came before the failure stay set aside.
  std::vector<std::filesystem::path> set_aside(std::span<const std::uint64_t> steps,
                                               std::optional<std::uint64_t> newest,
                                               const OwnerTag& owner);

  // ---- loading -----------------------------------------------------------------------------
  // Every directory named step-N, newest (highest step) first, whether whole or not. For ranks that
  // must agree: go down the list together until Checkpoint::open + read_into worked on all.
  std::vector<Candidate> candidates() const;

  // Fills `targets` from the newest checkpoint whose bytes are right, passing over damaged ones.
  // One that cannot be read just now is waited for, and then an UnreadableError: it may be whole.
  // Another process may save and remove meanwhile: if all that were listed are gone, it looks
  // again. Nothing if ROOT holds none at all. Throws Error if it holds some and none is whole
  // (starting afresh must be someone's decision), MismatchError if the newest whole one does not
  // fit.
  std::optional<Loaded> load_newest(std::span<const MutableArrayView> targets,
                                    Match match = Match::exact,
                                    const ReadOptions& options = {}) const;

  // The same choice by any other way of reading: `accept` throws DamagedError to pass a checkpoint
  // over. Looks at steps later than `after` only.
  Found newest_accepted(const std::function<void(const Checkpoint&)>& accept,
                        std::optional<std::uint64_t> after = std::nullopt) const;

  // The same choice without reading into memory: every byte of the result has been verified.
  std::optional<Loaded> newest_verified(const ReadOptions& options = {}) const;

 private:
  Saved write_and_publish(const SaveId& id, std::span<const FileRecord> records,
                          const CheckpointInfo& info);
  void publish(const SaveId& id, Saved& saved);
  void leave_hint(std::uint64_t step, const OwnerTag& owner);
  std::filesystem::path free_name(std::string_view kind, std::uint64_t step,
                                  const OwnerTag& owner) const;

  std::filesystem::path root_;
  SaveOptions options_;
  FileOps* ops_;
};

// Creates a directory, and what is missing above it, so that the names survive a loss of power.
// Throws IoError.
void make_durable_directory(const std::filesystem::path& directory);

}  // namespace ddp::ckpt
