// SPDX-License-Identifier: Apache-2.0
// A file from which several threads read blocks, so that data may be larger than memory. The ranks
// of a node share the page cache. The file is read, not mapped, so that truncating it while the
// program runs results in an error message instead of a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace ddp::data {

class PositionedFile {
 public:
  // Throws UsageError if `path` is not a readable regular file.
  explicit PositionedFile(std::filesystem::path path);
  PositionedFile(const PositionedFile&) = delete;
  PositionedFile& operator=(const PositionedFile&) = delete;
  ~PositionedFile();

  // Fills `bytes` from `offset` on. Throws RuntimeError if the file ends early or cannot be read.
  void read(std::span<unsigned char> bytes, std::int64_t offset) const;

  std::int64_t size() const noexcept { return size_; }  // at the time of opening
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace ddp::data
