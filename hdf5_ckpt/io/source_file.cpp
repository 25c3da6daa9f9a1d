// SPDX-License-Identifier: Apache-2.0
// Reads a piece in whole pages, directly into the destination if the piece begins and ends at page
// boundaries.

#include "hdf5_ckpt/io/source_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ddp::ckpt {
namespace {

// Smaller pieces use the page cache: they are adjacent in the file, and the kernel reads ahead for
// them.
constexpr std::size_t kLeastDirect = 256 << 10;

SourceFile::Piece filled(std::span<std::byte> bytes, const ReadResult& result) {
  return {bytes.first(result.bytes), result.code};
}

}  // namespace

FileDescriptor open_around_cache(const FileDescriptor& fd) {
  // Reopened through /proc/self/fd: guarantees the same inode even if the path was replaced.
  return FileDescriptor(
      ::open(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
}

SourceFile::SourceFile(FileDescriptor fd, FileDescriptor around_cache)
    : fd_(std::move(fd)),
      around_cache_(std::move(around_cache)),
      around_works_(static_cast<bool>(around_cache_)) {}

SourceFile::Piece SourceFile::read(std::uint64_t offset, std::size_t size,
                                   std::span<std::byte> place, AlignedBuffer& passage) {
  if (size >= kLeastDirect && around_works_) {
    const Piece piece = read_around_cache(offset, size, place, passage);
    if (piece.code != EINVAL) return piece;
    around_works_ = false;  // some file systems open such a file and then fail to read it
  }
  const auto bytes = place.empty() ? passage.get(size) : place.first(size);
  return filled(bytes, read_fully(fd_.get(), bytes, offset));
}

SourceFile::Piece SourceFile::read_around_cache(std::uint64_t offset, std::size_t size,
                                                std::span<std::byte> place,
                                                AlignedBuffer& passage) {
  if (!place.empty() && begins_aligned(place.data(), offset) && size % kAlignment == 0) {
    const auto bytes = place.first(size);
    return filled(bytes, read_fully(around_cache_.get(), bytes, offset));
  }
  const std::uint64_t begin = offset / kAlignment * kAlignment;
  const std::size_t before = offset - begin;
  const std::size_t pages = (before + size + kAlignment - 1) / kAlignment * kAlignment;
  const auto around = passage.get(pages);
  const ReadResult result = read_fully(around_cache_.get(), around, begin);
  const std::size_t there = result.bytes - std::min(result.bytes, before);
  return {around.subspan(before, std::min(there, size)), result.code};
}

}  // namespace ddp::ckpt
