// SPDX-License-Identifier: Apache-2.0
// Shards of saves on a node's own disk, before they are in the checkpoint directory.
//
// Note [Node-local saves]
// A save that goes to a disk of each node first takes less time than one to a shared file system,
// which all nodes fill at once. The shards are then copied to the checkpoint directory while
// training continues, and committed there like those of any other save. So nothing ever resumes
// from a node-local shard: a job that ended between the two copies them when it is started again on
// the same nodes, and resumes from the checkpoint directory.
//
// DIR/slurm-ddp-UID/ID/.tmp-step-N.<owner>/ holds the shards of one save that were written on this
// node, rank-00003-of-00008.h5, and beside each a record of it, rank-00003-of-00008.h5.json, which
// is written last. ID is in the checkpoint directory, too: a directory that was deleted and made
// again, or in which checkpoints were set aside, has another one, and the shards of the old one
// are not used. A save is complete if the nodes together hold as many shards as each record says.
// DIR may be a directory like /tmp, in which all users write; slurm-ddp-UID is this user's alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/file_ops.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt {

// One shard on a node's disk.
struct LocalShard {
  SaveId save;
  std::size_t shards = 1;  // of the save, over all nodes
  FileRecord record;
  // Everything in the manifest of the save but files and arrays; one shard of the save has it.
  std::optional<CheckpointInfo> info;
};

// Throws Error if this process cannot write to its user's part of `directory`, or if others can.
void require_local_directory(const std::filesystem::path& directory);

class LocalStore {
 public:
  // `id`: local_store_id() of the directory `checkpoints`. Creates the directories and checks
  // that no other user can write there; throws Error. `ops` must outlive the object.
  LocalStore(const std::filesystem::path& directory, const std::string& id,
             const std::filesystem::path& checkpoints, FileOps& ops = system_file_ops());

  // Writes a shard and then its record; both are durable on return. `attributes`: see
  // write_hdf5_file. Throws Error, and then leaves no record behind.
  LocalShard write(const SaveId& save, std::size_t shards, const std::string& file_name,
                   std::span<const ArrayView> arrays, const nlohmann::json& attributes,
                   const std::optional<CheckpointInfo>& info = std::nullopt);

  // Takes over a shard of another store: the caller writes its file at the path that
  // make_room_for() returns, where none is, and then calls add(), which writes the record. Both
  // throw Error.
  std::filesystem::path make_room_for(const LocalShard& shard);
  void add(const LocalShard& shard);

  // The file of a shard.
  std::filesystem::path file_of(const LocalShard& shard) const;

  // All shards with a valid record, in any order. Adds a sentence to `notes` for each other record.
  std::vector<LocalShard> list(std::vector<std::string>& notes) const;

  // A save whose shards are all in this store, as a checkpoint to load. `shards`: all of them, with
  // the info of one. Throws DamagedError if they are not one save, or a file is missing or has
  // another size; reads no array.
  Checkpoint open(std::span<const LocalShard> shards) const;

  // Removes a shard, its record first. Ignores errors.
  void remove(const LocalShard& shard) noexcept;

  // Removes the shards of all saves but `keep`, those of `owner` or, by default, of all owners.
  // Ignores errors: the next call tries again.
  void keep_only(std::span<const SaveId> keep, const std::optional<OwnerTag>& owner = {}) noexcept;

  // Removes the shards of all saves of steps up to `step`. Ignores errors, too.
  void remove_up_to(std::uint64_t step) noexcept;

  // Removes the stores of earlier checkpoint directories with the same path, and notes the path for
  // the next time. Call on one rank of a node. Ignores errors.
  void remove_abandoned() noexcept;

 private:
  std::filesystem::path user_directory_;
  std::filesystem::path root_;
  std::string checkpoints_;  // the path of the directory
  CheckpointDirectory shards_;
  FileOps* ops_;
};

// Convert a shard for sending it to another rank. shard_from_text throws Error.
std::string shard_to_text(const LocalShard& shard);
LocalShard shard_from_text(const std::string& text);

// Convert `info` for sending it to another rank: a manifest without files and arrays, which has a
// checksum, a version and limits of its own. info_from_text throws Error.
std::string info_to_text(const SaveId& save, const CheckpointInfo& info);
CheckpointInfo info_from_text(const std::string& text);

// The identity of a checkpoint directory for its node-local saves, 16 hexadecimal digits;
// nullopt if it has none yet. Throws IoError if it cannot be read.
std::optional<std::string> local_store_id(const std::filesystem::path& root);

// Returns the identity, and makes one if there is none yet. Throws IoError.
std::string make_local_store_id(const std::filesystem::path& root, const OwnerTag& owner);

// Removes the identity, so that earlier node-local saves are not used any more. Throws IoError.
void remove_local_store_id(const std::filesystem::path& root);

}  // namespace ddp::ckpt
