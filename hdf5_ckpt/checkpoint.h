#pragma once
// One committed checkpoint, open for reading. Reads go by the manifest's offsets with pread, never
// through libhdf5, and every byte that is handed out has passed its crc32c.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/array.h"
#include "hdf5_ckpt/manifest.h"
#include "hdf5_ckpt/progress.h"

namespace ddp::ckpt {

struct ReadOptions {
  unsigned threads = 4;    // each waits for the disk or checks: more of them than processors
  Progress progress = {};  // of bytes read and checked
  // Large arrays around the page cache. Off where several processes of a node read the same ones,
  // which a cache gives to all for one reading.
  bool direct_io = true;
};

struct Wanted;  // detail/block_reader.h

// Which arrays of the checkpoint a read must name.
enum class Match {
  exact,   // all of them: resuming
  subset,  // any of them: warm start, inference
};

// One array of a checkpoint, as a reader sees it, however many parts it is stored in.
struct StoredArray {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;                       // of all of it
  std::uint64_t length = 0;          // bytes of all of it
  std::span<const ArrayInfo> parts;  // at least one; belongs to the checkpoint
};

class Checkpoint {
 public:
  // Opens the directory that holds manifest.json, validates the manifest and the presence, kind and
  // size of every file; reads no array. Throws DamagedError, or Error if there is no such
  // directory.
  static Checkpoint open(const std::filesystem::path& directory);

  const std::filesystem::path& path() const noexcept { return path_; }
  const Manifest& manifest() const noexcept { return manifest_; }
  const std::vector<StoredArray>& arrays() const noexcept { return arrays_; }  // sorted by name
  const StoredArray* find(std::string_view name) const noexcept;
  std::uint64_t total_bytes() const noexcept;  // of all HDF5 files

  // Reads every byte of every file from the disk and compares checksums. Throws DamagedError
  // naming the array (or the metadata) and the bytes that are wrong.
  void verify(const ReadOptions& options = {}) const;

  // As verify(), for one file that has no manifest beside it yet.
  static void verify_file(const std::filesystem::path& directory, const FileRecord& record,
                          const ReadOptions& options = {});

  // As verify(), for the bytes that belong to no array. They are few.
  void verify_metadata() const;

  // One array, all of it, in memory of its own. Throws MismatchError if there is no such array.
  OwnedArray read(std::string_view name, const ReadOptions& options = {}) const;

  // Passes all bytes of one array to `take`, in their order and in pieces of at most `piece_bytes`
  // (or one element). Throws as read() does.
  void stream(std::string_view name, std::uint64_t piece_bytes, const ReadOptions& options,
              const std::function<void(std::span<const std::byte>)>& take) const;

  // Fills every target, which may be a whole array or any part of one (then the same name may come
  // several times): reads the blocks that hold something of it, and no others. Throws MismatchError
  // listing names that are missing or unexpected and shapes or dtypes that differ, before any byte
  // is read; DamagedError if bytes are wrong, and then what the targets hold is undefined.
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
  std::vector<StoredArray> arrays_;  // views of manifest_, which moves without moving its arrays
};

}  // namespace ddp::ckpt
