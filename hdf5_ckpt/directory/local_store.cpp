// SPDX-License-Identifier: Apache-2.0
// Note [Node-local saves] in the header.

#include "hdf5_ckpt/directory/local_store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/core/names.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/io/posix_read.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kRecordEnding = ".json";
constexpr std::string_view kDraftEnding = ".new";
// A file in each store with the path of its checkpoint directory.
constexpr std::string_view kPathName = "checkpoint-directory";
constexpr std::size_t kMaxSmallFile = 8192;

// Throws DamagedError or UnreadableError.
std::string text_of_file(const fs::path& path, std::size_t most) {
  return text_of(open_regular_file(path), path.string(), most);
}

bool is_store_name(std::string_view name) {
  return name.size() == 16 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Creates this user's own directory, or checks that it is. Others could otherwise replace what the
// next job resumes from.
fs::path make_user_directory(FileOps& ops, const fs::path& directory) {
  fs::path mine = fs::absolute(directory) / fmt::format("slurm-ddp-{}", ::geteuid());
  make_directories(ops, mine.parent_path());
  if (ops.mkdir(mine.c_str(), 0700) != 0 && errno != EEXIST)
    throw IoError("create the directory", mine, errno);
  struct stat status = {};
  if (ops.lstat(mine.c_str(), &status) != 0) throw IoError("inspect", mine, errno);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    throw Error(fmt::format(
        "'{}' is not a directory that only this user can access, so it is not used; remove it, or "
        "choose another directory for node-local saves",
        mine.string()));
  return mine;
}

json to_json(const LocalShard& shard) {
  json result = {{"save", shard.save.to_json()},
                 {"shards", shard.shards},
                 {"record", record_to_json(shard.record)}};
  if (shard.info) result["info"] = info_to_text(shard.save, *shard.info);
  return result;
}

LocalShard shard_from_json(const json& value) {
  const JsonFields fields(value, "record");
  LocalShard shard;
  shard.save = SaveId::from_json(fields.at("save"));
  shard.shards = fields.number("shards", kMaxFiles);
  shard.record = record_from_json(fields.at("record"));
  if (const std::string problem = file_name_problem(shard.record.file.name); !problem.empty())
    fields.fail("record", "names a file that " + problem);
  if (fields.has("info")) shard.info = info_from_text(fields.text("info"));
  return shard;
}

std::string record_of(const fs::path& file) {
  return file.string() + std::string(kRecordEnding);
}

// Whether the store's file names this checkpoint directory.
bool belongs_to(const fs::path& store, const std::string& checkpoints) {
  try {
    return text_of_file(store / kPathName, kMaxSmallFile) == checkpoints;
  } catch (const Error&) {
    return false;  // a process that ended before its first save left no such file
  }
}

fs::path directory_of(const fs::path& root, const SaveId& save) {
  return root / owned_directory_name(kBuilding, save.step, save.owner);
}

}  // namespace

void require_local_directory(const fs::path& directory) {
  FileOps& ops = system_file_ops();
  const fs::path mine = make_user_directory(ops, directory);
  if (::access(mine.c_str(), R_OK | W_OK | X_OK) != 0) throw IoError("write to", mine, errno);
}

LocalStore::LocalStore(const fs::path& directory, const std::string& id,
                       const fs::path& checkpoints, FileOps& ops)
    : user_directory_(make_user_directory(ops, directory)),
      root_(user_directory_ / id),
      checkpoints_(absolute_directory(checkpoints).string()),
      shards_(root_, {}, ops),
      ops_(&ops) {
  make_directories(ops, root_);
}

fs::path LocalStore::file_of(const LocalShard& shard) const {
  return directory_of(root_, shard.save) / shard.record.file.name;
}

LocalShard LocalStore::write(const SaveId& save, std::size_t shards, const std::string& file_name,
                             std::span<const ArrayView> arrays, const json& attributes,
                             const std::optional<CheckpointInfo>& info) {
  LocalShard shard{save, shards, {}, info};
  shard.record.file.name = file_name;
  make_room_for(shard);
  shard.record = shards_.write_shard(save, file_name, arrays, attributes);
  add(shard);
  return shard;
}

fs::path LocalStore::make_room_for(const LocalShard& shard) {
  fs::path file = file_of(shard);
  make_directories(*ops_, file.parent_path());
  // If it is there, it is written again because the first attempt failed.
  ops_->unlink(record_of(file).c_str());
  ops_->unlink(file.c_str());
  return file;
}

void LocalStore::add(const LocalShard& shard) {
  const std::string record = record_of(file_of(shard));
  replace_durable_file(*ops_, record, record + std::string(kDraftEnding), to_json(shard).dump());
}

std::vector<LocalShard> LocalStore::list(std::vector<std::string>& notes) const {
  std::vector<LocalShard> found;
  for (const std::string& save : names_in_directory(*ops_, root_)) {
    if (!owner_of_leftover(save)) continue;
    for (const std::string& name : names_in_directory(*ops_, root_ / save)) {
      if (!name.ends_with(kRecordEnding)) continue;
      const fs::path path = root_ / save / name;
      try {
        LocalShard shard = shard_from_json(parse_json(text_of_file(path, kMaxManifestBytes)));
        if (record_of(file_of(shard)) != path.string())
          throw DamagedError("it belongs to another file");
        found.push_back(std::move(shard));
      } catch (const Error& error) {
        notes.push_back(
            fmt::format("skipped the node-local record '{}': {}", path.string(), error.what()));
      }
    }
  }
  return found;
}

Checkpoint LocalStore::open(std::span<const LocalShard> shards) const {
  std::vector<FileRecord> records;
  const CheckpointInfo* info = nullptr;
  for (const LocalShard& shard : shards) {
    records.push_back(shard.record);
    if (shard.info) info = &*shard.info;
  }
  if (info == nullptr || shards.size() != shards.front().shards)
    throw DamagedError("a node-local save is not complete");
  const SaveId& save = shards.front().save;
  // The text is checked as that of any other manifest, and its checksum names the save.
  std::string text;
  try {
    text = serialize_manifest(manifest_of(save, records, *info));
  } catch (const Error& error) {
    throw DamagedError(error.what());
  }
  return Checkpoint::open(directory_of(root_, save), parse_manifest(text));
}

void LocalStore::remove(const LocalShard& shard) noexcept {
  try {
    const fs::path file = file_of(shard);
    ops_->unlink(record_of(file).c_str());
    ops_->unlink(file.c_str());
    ops_->rmdir(file.parent_path().c_str());  // unless it has shards of other ranks
  } catch (const std::exception&) {
    // Only space is lost.
  }
}

void LocalStore::keep_only(std::span<const SaveId> keep,
                           const std::optional<OwnerTag>& owner) noexcept {
  try {
    for (const std::string& name : names_in_directory(*ops_, root_)) {
      const auto writer = owner_of_leftover(name);
      if (!writer || (owner && *writer != *owner)) continue;
      const bool kept = std::any_of(keep.begin(), keep.end(), [&](const SaveId& save) {
        return directory_of(root_, save).filename() == name;
      });
      if (!kept) remove_directory(*ops_, root_ / name);
    }
  } catch (const std::exception&) {
    // Only space is lost.
  }
}

void LocalStore::remove_up_to(std::uint64_t step) noexcept {
  try {
    for (const std::string& name : names_in_directory(*ops_, root_)) {
      const auto saved = step_of_owned_directory(kBuilding, name);
      if (saved && *saved <= step) remove_directory(*ops_, root_ / name);
    }
  } catch (const std::exception&) {
    // Only space is lost.
  }
}

void LocalStore::remove_abandoned() noexcept {
  try {
    if (!is_there(*ops_, root_ / kPathName))
      replace_durable_file(*ops_, root_ / kPathName, root_ / fmt::format("{}.new", kPathName),
                           checkpoints_);
    for (const std::string& name : names_in_directory(*ops_, user_directory_)) {
      const fs::path store = user_directory_ / name;
      if (!is_store_name(name) || store == root_ || !belongs_to(store, checkpoints_)) continue;
      for (const std::string& entry : names_in_directory(*ops_, store))
        if (owner_of_leftover(entry)) remove_directory(*ops_, store / entry);
      remove_directory(*ops_, store);
    }
  } catch (const std::exception&) {
    // Only space is lost.
  }
}

std::string shard_to_text(const LocalShard& shard) {
  return to_json(shard).dump();
}

LocalShard shard_from_text(const std::string& text) {
  return shard_from_json(parse_json(text));
}

std::string info_to_text(const SaveId& save, const CheckpointInfo& info) {
  Manifest manifest;
  manifest.step = save.step;
  manifest.epoch = info.epoch;
  manifest.world_size = info.world_size;
  manifest.run_id = info.run_id;
  manifest.state = info.state;
  manifest.lineage = info.lineage;
  manifest.permanent = info.permanent;
  return serialize_manifest(manifest);
}

CheckpointInfo info_from_text(const std::string& text) {
  Manifest manifest = parse_manifest(text);
  return {manifest.epoch,
          manifest.world_size,
          std::move(manifest.run_id),
          std::move(manifest.state),
          std::move(manifest.lineage),
          manifest.permanent};
}

std::optional<std::string> local_store_id(const fs::path& root) {
  const fs::path file = absolute_directory(root) / kLocalSavesName;
  if (!is_there(system_file_ops(), file)) return std::nullopt;
  std::string text;
  try {
    text = text_of_file(file, kMaxSmallFile);
  } catch (const DamagedError&) {
    return std::nullopt;
  }
  std::string id = text.substr(0, text.find('\n'));
  // A copy of the directory is another directory.
  if (!is_store_name(id) || text != fmt::format("{}\n{}\n", id, file.parent_path().string()))
    return std::nullopt;
  return id;
}

std::string make_local_store_id(const fs::path& root, const OwnerTag& owner) {
  if (auto id = local_store_id(root)) return *id;
  const fs::path directory = absolute_directory(root);
  std::string id = new_run_name();
  replace_durable_file(system_file_ops(), directory / kLocalSavesName,
                       directory / local_saves_draft_name(owner),
                       fmt::format("{}\n{}\n", id, directory.string()));
  return id;
}

void remove_local_store_id(const fs::path& root) {
  const fs::path file = absolute_directory(root) / kLocalSavesName;
  if (system_file_ops().unlink(file.c_str()) != 0 && errno != ENOENT)
    throw IoError("remove", file, errno);
}

}  // namespace ddp::ckpt
