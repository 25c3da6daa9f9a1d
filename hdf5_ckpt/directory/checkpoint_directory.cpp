// SPDX-License-Identifier: Apache-2.0
// The commit protocol and the choice of the checkpoint to load: Note [Crash safety] in the header.

#include "hdf5_ckpt/directory/checkpoint_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <limits>
#include <utility>

#include "base/host.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/core/names.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/io/copy_file.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/io/publish.h"
#include "hdf5_ckpt/io/retry.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSkippedListed = 5;
constexpr int kMaxListings = 5;
constexpr int kMaxSameNames = 1000;

fs::path draft_directory(const fs::path& root, const SaveId& id) {
  return root / owned_directory_name(kBuilding, id.step, id.owner);
}

// Returns the reason why the directory is not a whole checkpoint; empty if it is.
std::string damage_in(const fs::path& dir) {
  try {
    Checkpoint::open(dir).verify();
    return "";
  } catch (const DamagedError& error) {
    return error.what();
  }
}

// Tries candidates from newest to oldest until `accept` accepts one. Adds a sentence to `skipped`
// for each skipped candidate.
std::optional<Checkpoint> newest_of(const std::vector<Candidate>& candidates,
                                    const RetryPolicy& retry,
                                    const std::function<void(const Checkpoint&)>& accept,
                                    std::vector<std::string>& skipped) {
  for (const Candidate& candidate : candidates) {
    try {
      return with_retries(retry.unit, [&] {
        Checkpoint checkpoint = Checkpoint::open(candidate.path);
        if (checkpoint.manifest().step != candidate.step)
          throw DamagedError(fmt::format("checkpoint '{}': its manifest says step {}",
                                         candidate.path.string(), checkpoint.manifest().step));
        accept(checkpoint);
        return checkpoint;
      });
    } catch (const DamagedError& error) {
      skipped.push_back(fmt::format("skipped {}", error.what()));
    }
  }
  return std::nullopt;
}

std::optional<Loaded> newest_that(const CheckpointDirectory& directory,
                                  const std::function<void(const Checkpoint&)>& accept) {
  auto [checkpoint, skipped] = directory.newest_accepted(accept);
  if (checkpoint) return Loaded{std::move(*checkpoint), std::move(skipped)};
  if (skipped.empty()) return std::nullopt;
  const std::size_t listed = std::min(skipped.size(), kMaxSkippedListed);
  throw Error(fmt::format(
      "none of the {} checkpoints in '{}' is whole: {}; to start from scratch anyway, move them "
      "away or choose another directory",
      skipped.size(), directory.root().string(),
      fmt::join(skipped.begin(), skipped.begin() + static_cast<std::ptrdiff_t>(listed), "; ")));
}

}  // namespace

nlohmann::json SaveId::to_json() const {
  return {{"step", step}, {"owner", owner.text()}};
}

SaveId SaveId::from_json(const nlohmann::json& json) {
  const JsonFields fields(json, "save id");
  const auto owner = OwnerTag::parse(fields.text("owner"));
  if (!owner) fields.fail("owner", "is not an owner tag");
  return {fields.number("step", std::numeric_limits<std::int64_t>::max()), *owner};
}

Manifest manifest_of(const SaveId& id, std::span<const FileRecord> records,
                     const CheckpointInfo& info) {
  Manifest manifest;
  manifest.step = id.step;
  manifest.epoch = info.epoch;
  manifest.world_size = info.world_size;
  manifest.run_id = info.run_id;
  manifest.created_unix = static_cast<std::int64_t>(std::max(0.0, unix_seconds()));
  manifest.state = info.state;
  manifest.lineage = info.lineage;
  manifest.permanent = info.permanent;
  for (const FileRecord& record : records) {
    manifest.files.push_back(record.file);
    manifest.arrays.insert(manifest.arrays.end(), record.arrays.begin(), record.arrays.end());
  }
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.name < b.name; });
  std::sort(manifest.arrays.begin(), manifest.arrays.end(), stored_before);
  return manifest;
}

CheckpointDirectory::CheckpointDirectory(const fs::path& root, SaveOptions options, FileOps& ops)
    : options_(std::move(options)), ops_(&ops) {
  if (root.empty()) throw Error("the checkpoint directory has an empty name");
  // The training program may change its working directory between two saves.
  root_ = fs::absolute(root);
}

SaveId CheckpointDirectory::begin(std::uint64_t step, const OwnerTag& owner) {
  SaveId id{step, owner};
  const fs::path draft = draft_directory(root_, id);
  make_directories(*ops_, root_);
  if (ops_->mkdir(draft.c_str(), 0777) == 0) return id;
  if (errno != EEXIST) throw IoError("create the directory", draft, errno);
  // The entry is from a failed save of this process or from another program.
  if (const int code = remove_directory(*ops_, draft); code != 0)
    throw IoError("remove the entry that blocks a save,", draft, code);
  if (ops_->mkdir(draft.c_str(), 0777) != 0) throw IoError("create the directory", draft, errno);
  return id;
}

FileRecord CheckpointDirectory::write_shard(const SaveId& id, const std::string& file_name,
                                            std::span<const ArrayView> arrays,
                                            const nlohmann::json& attributes) {
  // Check the name before it becomes part of a path: the writer checks only the last component.
  if (const std::string problem = file_name_problem(file_name); !problem.empty())
    throw Error(fmt::format("the file name '{}' {}", file_name, problem));
  nlohmann::json all = attributes;
  if (!all.is_object()) throw Error("a file's attributes must be a JSON object");
  all["format"] = "hdf5_ckpt";
  std::uint64_t needed = kWholeArraysVersion;
  for (const ArrayView& array : arrays)
    needed =
        std::max(needed, version_needed(is_of_first_versions(array.dtype), array.part.has_value()));
  all["version"] = all["min_reader"] = needed;
  all["step"] = id.step;
  return write_hdf5_file(draft_directory(root_, id) / file_name, arrays, all, options_.write,
                         *ops_);
}

void CheckpointDirectory::copy_shard(const SaveId& id, const FileRecord& record,
                                     const fs::path& from) {
  if (const std::string problem = file_name_problem(record.file.name); !problem.empty())
    throw Error(fmt::format("the file name '{}' {}", record.file.name, problem));
  copy_file_durably(*ops_, from, draft_directory(root_, id) / record.file.name,
                    options_.write.threads);
}

void CheckpointDirectory::read_back(const SaveId& id, const FileRecord& record,
                                    const ReadOptions& options) const {
  Checkpoint::verify_file(draft_directory(root_, id), record, options);
}

Saved CheckpointDirectory::commit(const SaveId& id, std::span<const FileRecord> records,
                                  const CheckpointInfo& info) {
  try {
    Saved saved = write_and_publish(id, records, info);
    try {
      leave_hint(id.step, id.owner);
    } catch (const Error& error) {
      // The checkpoint exists and is durable; nothing depends on the hint.
      saved.notes.emplace_back(error.what());
    }
    return saved;
  } catch (...) {
    abandon(id);
    throw;
  }
}

Saved CheckpointDirectory::write_and_publish(const SaveId& id, std::span<const FileRecord> records,
                                             const CheckpointInfo& info) {
  const fs::path draft = draft_directory(root_, id);
  Saved saved{root_ / step_directory_name(id.step), manifest_of(id, records, info), {}};
  write_durable_file(*ops_, draft / kManifestName, serialize_manifest(saved.manifest));
  sync_directory(*ops_, draft);
  // Reads the manifest back and detects files that another rank reported but this one cannot see.
  const Checkpoint written = Checkpoint::open(draft);
  if (options_.read_back) written.verify();
  saved.manifest.crc32c = written.manifest().crc32c;
  if (options_.before_publishing) options_.before_publishing();
  publish(id, info.replaces_step ? IfExists::replace : options_.if_exists, saved);
  return saved;
}

void CheckpointDirectory::publish(const SaveId& id, IfExists if_exists, Saved& saved) {
  Publication publication(*ops_, draft_directory(root_, id), saved.path);
  fs::path replaced;
  if (!publication.try_fresh()) {
    const std::string damage = damage_in(saved.path);
    if (damage.empty() && if_exists == IfExists::fail)
      throw Error(
          fmt::format("'{}' already exists and is whole, written by another save; resume from "
                      "it, or choose another checkpoint directory",
                      saved.path.string()));
    const bool keep = !damage.empty() || if_exists == IfExists::set_aside;
    replaced = free_name(!damage.empty() ? kDamaged
                         : keep          ? kSuperseded
                                         : kDeleting,
                         id.step, id.owner);
    publication.replace(replaced);
    if (!damage.empty())
      saved.notes.push_back(fmt::format("replaced a damaged checkpoint, kept as '{}': {}",
                                        replaced.string(), damage));
    else if (keep)
      saved.notes.push_back(
          fmt::format("replaced another checkpoint of that step, kept as '{}'", replaced.string()));
    if (keep) replaced.clear();
  }
  publication.make_durable();
  if (replaced.empty()) return;
  if (const int code = remove_directory(*ops_, replaced); code != 0)
    saved.notes.emplace_back(IoError("remove the replaced checkpoint", replaced, code).what());
}

void CheckpointDirectory::leave_hint(std::uint64_t step, const OwnerTag& owner) {
  replace_durable_file(*ops_, root_ / kHintName, root_ / hint_draft_name(owner),
                       step_directory_name(step) + "\n");
}

// A process with the same id may have set the same step aside before, for example in a container.
fs::path CheckpointDirectory::free_name(std::string_view kind, std::uint64_t step,
                                        const OwnerTag& owner) const {
  const fs::path plain = root_ / owned_directory_name(kind, step, owner);
  fs::path name = plain;
  for (int number = 2; number <= kMaxSameNames && is_there(*ops_, name); ++number)
    name = plain.string() + fmt::format("-{}", number);
  return name;
}

std::vector<fs::path> CheckpointDirectory::set_aside(std::span<const std::uint64_t> steps,
                                                     std::optional<std::uint64_t> newest,
                                                     const OwnerTag& owner) {
  std::vector<fs::path> names;
  if (!steps.empty()) forget_local_saves();
  for (const std::uint64_t step : steps) {
    const fs::path from = root_ / step_directory_name(step);
    const fs::path to = free_name(kSuperseded, step, owner);
    if (const int code = rename_no_replace(*ops_, from, to); code != 0)
      throw IoError("set aside", from, code);
    names.push_back(to);
  }
  if (names.empty()) return names;
  sync_directory(*ops_, root_);
  if (newest)
    leave_hint(*newest, owner);
  else
    ops_->unlink((root_ / kHintName).c_str());
  return names;
}

void CheckpointDirectory::forget_local_saves() {
  const fs::path identity = root_ / kLocalSavesName;
  if (ops_->unlink(identity.c_str()) != 0 && errno != ENOENT)
    throw IoError("remove", identity, errno);
}

std::vector<fs::path> CheckpointDirectory::set_aside_later_than(std::uint64_t step,
                                                                const OwnerTag& owner) {
  std::vector<std::uint64_t> later;
  std::optional<std::uint64_t> newest;
  for (const Candidate& candidate : candidates()) {
    if (candidate.step > step)
      later.push_back(candidate.step);
    else if (!newest || candidate.step > *newest)
      newest = candidate.step;
  }
  return set_aside(later, newest, owner);
}

void CheckpointDirectory::abandon(const SaveId& id) noexcept {
  try {
    remove_directory(*ops_, draft_directory(root_, id));
  } catch (...) {
    // The directory stays until remove_leftovers(), because a failing save must report its own
    // error, not this one.
  }
}

Saved CheckpointDirectory::save(std::uint64_t step, const OwnerTag& owner,
                                std::span<const ArrayView> arrays, const CheckpointInfo& info) {
  const SaveId id = begin(step, owner);
  FileRecord record;
  try {
    record = write_shard(id, "model.h5", arrays,
                         {{"epoch", info.epoch}, {"world_size", info.world_size}});
  } catch (...) {
    abandon(id);
    throw;
  }
  return commit(id, {&record, 1}, info);
}

std::vector<Candidate> CheckpointDirectory::candidates() const {
  std::vector<Candidate> found;
  for (const std::string& name : names_in_directory(*ops_, root_)) {
    const auto step = step_of_directory(name);
    if (!step) continue;
    struct stat status = {};
    if (ops_->lstat((root_ / name).c_str(), &status) != 0) {
      if (errno == ENOENT) continue;
      throw IoError("inspect", root_ / name, errno);
    }
    // A link may lead outside, so it is not a checkpoint of this directory.
    if (!S_ISLNK(status.st_mode)) found.push_back({*step, root_ / name});
  }
  std::sort(found.begin(), found.end(),
            [](const Candidate& a, const Candidate& b) { return a.step > b.step; });
  return found;
}

Found CheckpointDirectory::newest_accepted(const std::function<void(const Checkpoint&)>& accept,
                                           std::optional<std::uint64_t> at_least) const {
  const auto listed = [&] {
    std::vector<Candidate> found = candidates();
    if (at_least) std::erase_if(found, [&](const Candidate& c) { return c.step < *at_least; });
    return found;
  };
  std::vector<Candidate> now = listed();
  Found found;
  for (int listing = 0; listing < kMaxListings; ++listing) {
    found.skipped.clear();
    found.checkpoint = newest_of(now, options_.retry, accept, found.skipped);
    if (found.checkpoint) return found;
    // Another process may have saved newer checkpoints and removed the listed ones.
    std::vector<Candidate> later = listed();
    if (std::exchange(now, std::move(later)) == now) break;
  }
  return found;
}

std::optional<Loaded> CheckpointDirectory::load_newest(std::span<const MutableArrayView> targets,
                                                       Match match,
                                                       const ReadOptions& options) const {
  return newest_that(*this, [&](const Checkpoint& checkpoint) {
    checkpoint.verify_metadata();
    checkpoint.read_into(targets, match, options);
  });
}

std::optional<Loaded> CheckpointDirectory::newest_verified(const ReadOptions& options) const {
  return newest_that(*this, [&](const Checkpoint& checkpoint) { checkpoint.verify(options); });
}

std::array<fs::path, 2> with_best_directory(const fs::path& root) {
  return {root, root / kBestName};
}

void make_durable_directory(const fs::path& dir) {
  make_directories(system_file_ops(), fs::absolute(dir));
}

}  // namespace ddp::ckpt
