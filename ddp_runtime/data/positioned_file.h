// A file from which several threads read pieces, so that data may be larger than memory. The ranks
// of a node share what the system keeps of it. Reading instead of mapping makes a file that is cut
// off under a running program an error with a sentence, not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace ddp::data {

class PositionedFile {
 public:
  // Throws UsageError if `path` is not a regular file that can be read.
  explicit PositionedFile(std::filesystem::path path);
  PositionedFile(const PositionedFile&) = delete;
  PositionedFile& operator=(const PositionedFile&) = delete;
  ~PositionedFile();

  // Fills `bytes` from `offset` on. Throws RuntimeError if the file ends before, or cannot be read.
  void read(std::span<unsigned char> bytes, std::int64_t offset) const;

  std::int64_t size() const noexcept { return size_; }  // when it was opened
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace ddp::data
