// SPDX-License-Identifier: Apache-2.0
// The HDF5 file without the bytes of its arrays, which libhdf5 creates in memory. See Note [Write
// path] in writer.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/hdf5_handle.h"
#include "hdf5_ckpt/io/aligned_buffer.h"
#include "hdf5_ckpt/write/hdf5_objects.h"

namespace ddp::ckpt {

// Returns an upper bound, in bytes, for the size of a file with these arrays and attributes.
std::uint64_t file_size_bound(std::span<const ArrayView* const> arrays,
                              const nlohmann::json& attributes);

// Equal inputs give equal bytes and offsets.
class Skeleton {
 public:
  // `arrays` is sorted by name, with names that passed the checks of names.h. The checksums, in the
  // same order, are present for arrays whose bytes are already final. `attributes` is a flat
  // object. An empty `scratch_dir` means /dev/shm, else the system's directory for temporary files.
  // Throws Error.
  Skeleton(std::span<const ArrayView* const> arrays,
           std::span<const std::optional<std::uint32_t>> known_crcs,
           const nlohmann::json& attributes, const std::filesystem::path& scratch_dir);

  // Returns the offset of each array's bytes, in the given order; 0 for an empty array.
  const std::vector<std::uint64_t>& offsets() const noexcept { return offsets_; }

  // Returns the size of the whole file in bytes. finish() may reduce it slightly, because it frees
  // unused space.
  std::uint64_t size() const noexcept { return size_; }

  // Sets the crc32c attributes that were not known before and closes the HDF5 file. `crcs` covers
  // all arrays, in the given order.
  void finish(std::span<const std::uint32_t> crcs);

  // Reads the file's bytes [offset, offset + bytes.size()), with zeros in place of arrays. Call
  // after finish().
  void read(std::span<std::byte> bytes, std::uint64_t offset) const;

 private:
  struct Shared;
  void create_file(const std::filesystem::path& scratch_dir, std::uint64_t metadata_bytes);
  void create_array(const ArrayView& array, std::optional<std::uint32_t> crc, Shared& shared);

  std::vector<std::string> names_;
  std::vector<bool> needs_crc_;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t size_ = 0;
  Hdf5File file_;
  FileDescriptor fd_;  // outlives the name: the file is unlinked right after it is opened
};

}  // namespace ddp::ckpt
