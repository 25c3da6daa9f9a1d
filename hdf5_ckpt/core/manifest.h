// SPDX-License-Identifier: Apache-2.0
// The manifest: the record of a checkpoint's arrays, their locations and their checksums. A
// directory without a valid manifest is not a checkpoint. Format: docs/checkpoint.md.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/lineage.h"

namespace ddp::ckpt {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kSchema = "slurm-ddp/checkpoint/1";
inline constexpr std::uint64_t kReaderVersion = 3;
// The version that a reader must support. Version 2 added arrays stored in parts; version 3 added
// unsigned integers of more than 8 bits and complex numbers. A manifest with none of these is
// written as version 1.
inline constexpr std::uint64_t kWholeArraysVersion = 1;
inline constexpr std::uint64_t kPartsVersion = 2;
inline constexpr std::uint64_t kMoreTypesVersion = 3;

// Limits for readers and writers.
inline constexpr std::uint64_t kMaxManifestBytes = 64ULL << 20;
inline constexpr std::size_t kMaxFiles = 65536;
inline constexpr std::size_t kMaxArrays = 1000000;
inline constexpr std::size_t kMaxNameBytes = 1024;
inline constexpr std::size_t kMaxRank = 32;  // HDF5's own limit
inline constexpr std::uint64_t kMinBlockBytes = 4096;
inline constexpr std::uint64_t kMaxBlockBytes = 64ULL << 20;

// Returns the lowest reader version that supports an array of this type, stored whole or in parts.
constexpr std::uint64_t version_needed(bool first_types, bool in_parts) noexcept {
  if (!first_types) return kMoreTypesVersion;
  return in_parts ? kPartsVersion : kWholeArraysVersion;
}

struct FileInfo {
  std::string name;                   // "rank-00003-of-00008.h5": no directory, ends in .h5
  std::uint64_t size = 0;             // bytes
  std::uint64_t block_bytes = 0;      // bytes under one ArrayInfo::block_crc32c
  std::uint32_t metadata_crc32c = 0;  // of all bytes that belong to no array, in file order

  bool operator==(const FileInfo&) const = default;
};

// One writer's report to the committer about the file it has made durable.
struct FileRecord {
  FileInfo file;
  std::vector<ArrayInfo> arrays;  // sorted by name, no duplicates

  bool operator==(const FileRecord&) const = default;
};

struct Manifest {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::uint64_t world_size = 1;
  std::string run_id;
  std::int64_t created_unix = 0;  // seconds; informational only
  nlohmann::json state = nlohmann::json::object();
  std::vector<FileInfo> files;    // sorted by name
  std::vector<ArrayInfo> arrays;  // arrays and parts in the order of stored_before()
  std::optional<Lineage> lineage;
  bool permanent = false;  // retention never deletes it
  // Checksum of the manifest's text, which identifies it; 0 if it was not read from a file.
  std::uint32_t crc32c = 0;
};

// Orders by name, parts of one array by their start, and empty parts by their file.
bool stored_before(const ArrayInfo& a, const ArrayInfo& b) noexcept;

// Convert a record for sending it to the committing rank. record_from_json throws Error for a text
// that record_to_json did not produce.
nlohmann::json record_to_json(const FileRecord& record);
FileRecord record_from_json(const nlohmann::json& json);

// Returns the bytes of manifest.json. Throws Error if the manifest breaks a rule that a reader
// checks, so that no unreadable manifest is ever written, or if `state` contains values that JSON
// cannot represent.
std::string serialize_manifest(const Manifest& manifest);

// Checks size, checksum, structure and every rule of check_manifest(). Throws DamagedError naming
// the field, or Error if a newer version of this software wrote it.
Manifest parse_manifest(std::string_view text);

// Checks the rules: counts and names are valid, offsets are inside the file, arrays do not overlap,
// lengths are shape x itemsize, block checksums combine to the array's checksum, and parts cover
// each element of their array once. Throws DamagedError naming the entry that breaks a rule.
void check_manifest(const Manifest& manifest);

}  // namespace ddp::ckpt
