// SPDX-License-Identifier: Apache-2.0
// A file of another program, or several that belong together: the parts of a model that an index
// lists, as Hugging Face's libraries write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/external_hdf5.h"
#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/convert/mapped_file.h"

namespace ddp::ckpt {

// libhdf5 reads unknown files in a child process, which a process with threads cannot start.
enum class PlainHdf5 : std::uint8_t { refused, read };

class ForeignFile {
 public:
  // Opens a file, an index (*.index.json) with its files, or the weights in a directory. Throws
  // DamagedError or UnsupportedError that begin with the path, UsageError if there is no such file,
  // UnreadableError or IoError.
  static ForeignFile open(const std::filesystem::path& path, PlainHdf5 hdf5);

  const std::filesystem::path& path() const noexcept { return path_; }
  FileKind kind() const noexcept { return kind_; }
  std::size_t files() const noexcept { return files_.size(); }
  const FileContents& contents() const noexcept { return contents_; }
  // The file in which the array is.
  std::span<const std::byte> bytes(const ExternalArray& array) const {
    return files_[array.file].bytes();
  }

  // Writes the values of encoded arrays into the file `to`. Throws DamagedError that begins with
  // the path. Call it only while the process has a single thread.
  void decode(std::span<const Decoding> arrays, int to) const;

 private:
  void open_file(const std::filesystem::path& path, PlainHdf5 hdf5);
  void open_index(const std::filesystem::path& path);

  std::filesystem::path path_;
  FileKind kind_ = FileKind::safetensors;
  std::vector<MappedFile> files_;
  FileContents contents_;
};

// The file with the weights, or their index, in a directory that is not a checkpoint; nullopt if
// there is none. Throws UnsupportedError naming the program that wrote the directory and its
// command that joins the files, or if there are several files to choose from.
std::optional<std::filesystem::path> weights_in(const std::filesystem::path& directory);

}  // namespace ddp::ckpt
