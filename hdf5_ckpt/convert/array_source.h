// SPDX-License-Identifier: Apache-2.0
// Weights to start from: the named arrays of a checkpoint, of a safetensors or torch.save file, or
// of several that an index lists.
// The file is of unknown origin: nothing in it is executed, and it is checked completely before the
// first array is read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/convert/external.h"

namespace ddp::ckpt {

class ArraySource {
 public:
  // Opens a checkpoint's directory, a directory of checkpoints (its newest whole one), a
  // safetensors file, a file of torch.save, or an index with its files or the directory of them.
  // Has only the arrays whose names start with `prefix`, and removes it from their names
  // (prefix_in()); nullopt means "model/" for a checkpoint and nothing for a file. For "average/",
  // see checkpoint_arrays(). Throws
  // UsageError if there is no such file or it has no such array, UnsupportedError for files of
  // other kinds, and DamagedError, UnreadableError or IoError.
  static ArraySource open(const std::filesystem::path& path,
                          const std::optional<std::string>& prefix = std::nullopt);
  ArraySource(ArraySource&&) noexcept;
  ArraySource& operator=(ArraySource&&) noexcept;
  ~ArraySource();

  // The checkpoint or the file: of a directory of checkpoints, the chosen one.
  const std::filesystem::path& path() const noexcept;
  const std::vector<ArrayHeader>& arrays() const noexcept;  // sorted by name
  // Whether the run evaluated the averages of these weights instead, which the prefix "average/"
  // takes.
  bool leaves_average() const noexcept;
  // Arrays that the file has besides them, whose values cannot be read.
  std::span<const Omission> unreadable() const noexcept;

  // An array to read: all of its elements, dense and row-major, in its own type.
  struct Read {
    std::size_t array;         // index in arrays()
    std::span<std::byte> out;  // exactly its size
  };
  // Throws DamagedError if a checkpoint's bytes are wrong, or UnreadableError; the contents of the
  // buffers are then undefined.
  void read(std::span<const Read> reads) const;

 private:
  struct Contents;
  explicit ArraySource(std::unique_ptr<Contents> contents);

  std::unique_ptr<Contents> contents_;
};

}  // namespace ddp::ckpt
