// SPDX-License-Identifier: Apache-2.0
// One committed checkpoint, opened for reading. Reads use the manifest's offsets and pread, never
// libhdf5, and every byte that is returned has passed its crc32c.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/core/progress.h"

namespace ddp::ckpt {

struct ReadOptions {
  // More threads than cores are useful, because some wait for the disk while others compute
  // checksums.
  unsigned threads = 4;
  Progress progress = {};  // of bytes read and checked
  // Reads of large arrays bypass the page cache. Turn this off if several processes of a node read
  // the same arrays, so that one read from the disk serves all of them through the cache.
  bool direct_io = true;
};

struct Wanted;  // io/block_reader.h

// The arrays of the checkpoint that a read must request.
enum class Match {
  exact,   // all arrays, for resuming
  subset,  // any subset, for a warm start or inference
};

// One array of a checkpoint as a reader sees it, regardless of the number of parts it is stored in.
struct StoredArray {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;                       // of the whole array
  std::uint64_t length = 0;          // bytes of the whole array
  std::span<const ArrayInfo> parts;  // at least one; owned by the checkpoint
};

class Checkpoint {
 public:
  // Opens the directory that contains manifest.json; validates the manifest and the presence, type
  // and size of every file; reads no array. Throws DamagedError, or Error if the directory does not
  // exist.
  static Checkpoint open(const std::filesystem::path& directory);
  // The same with a manifest from elsewhere, which serialize_manifest() accepts; manifest.json need
  // not be there.
  static Checkpoint open(const std::filesystem::path& directory, Manifest manifest);

  const std::filesystem::path& path() const noexcept { return path_; }
  const Manifest& manifest() const noexcept { return manifest_; }
  const std::vector<StoredArray>& arrays() const noexcept { return arrays_; }  // sorted by name
  const StoredArray* find(std::string_view name) const noexcept;
  std::uint64_t total_bytes() const noexcept;  // of all HDF5 files

  // Reads every byte of every file from the disk and compares checksums. Throws DamagedError naming
  // the array (or the metadata) and the bytes that are wrong.
  void verify(const ReadOptions& options = {}) const;

  // Verifies one file that does not have a manifest yet.
  static void verify_file(const std::filesystem::path& directory, const FileRecord& record,
                          const ReadOptions& options = {});

  // Verifies only the bytes that belong to no array. There are few of them.
  void verify_metadata() const;

  // Reads one whole array into newly allocated memory. Throws MismatchError if there is no such
  // array.
  OwnedArray read(std::string_view name, const ReadOptions& options = {}) const;

  // Passes all bytes of one array to `take`, in order and in pieces of at most `piece_bytes` (or
  // one element). Throws as read() does.
  void stream(std::string_view name, std::uint64_t piece_bytes, const ReadOptions& options,
              const std::function<void(std::span<const std::byte>)>& take) const;

  // Fills every target, which may be a whole array or any part of one (the same name may then occur
  // several times). Reads only the blocks that contain requested elements. Throws MismatchError
  // listing missing and unexpected names and different shapes or dtypes, before any byte is read;
  // DamagedError if bytes are wrong, and the contents of the targets are then undefined.
  void read_into(std::span<const MutableArrayView> targets, Match match = Match::exact,
                 const ReadOptions& options = {}) const;

 private:
  Checkpoint(std::filesystem::path path, FileDescriptor directory, Manifest manifest);
  FileDescriptor open_file(const FileInfo& file) const;
  void check_all_metadata(Meter& meter) const;
  void read_wanted(std::map<std::string_view, std::vector<Wanted>> by_file, bool from_disk,
                   const ReadOptions& options) const;

  std::filesystem::path path_;
  FileDescriptor directory_;
  Manifest manifest_;
  std::vector<StoredArray> arrays_;  // points into manifest_; a move leaves its arrays in place
};

}  // namespace ddp::ckpt
