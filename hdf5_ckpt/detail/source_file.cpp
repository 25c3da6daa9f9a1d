// Pages that hold a piece are read whole, to its place if that begins and ends with a page.

#include "hdf5_ckpt/detail/source_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ddp::ckpt {
namespace {

// Small pieces lie side by side: the kernel reads ahead for them.
constexpr std::size_t kLeastDirect = 256 << 10;

// The same file, not whatever has its name by now.
UniqueFd open_again(const UniqueFd& fd) {
  return UniqueFd(
      ::open(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
}

}  // namespace

SourceFile::SourceFile(UniqueFd fd, bool direct_io) : fd_(std::move(fd)) {
  if (direct_io) direct_fd_ = open_again(fd_);
  direct_works_ = static_cast<bool>(direct_fd_);
}

ReadResult SourceFile::read(std::span<std::byte> bytes, std::uint64_t offset,
                            AlignedBuffer& passage) {
  if (bytes.size() >= kLeastDirect && direct_works_) {
    const ReadResult result = read_around_cache(bytes, offset, passage);
    if (result.code != EINVAL) return result;
    direct_works_ = false;  // some file systems open such a file and then refuse to read it
  }
  return read_fully(fd_.get(), bytes, offset);
}

ReadResult SourceFile::read_around_cache(std::span<std::byte> bytes, std::uint64_t offset,
                                         AlignedBuffer& passage) {
  if (begins_aligned(bytes.data(), offset) && bytes.size() % kAlignment == 0)
    return read_fully(direct_fd_.get(), bytes, offset);
  const std::uint64_t begin = offset / kAlignment * kAlignment;
  const std::size_t before = offset - begin;
  const std::size_t pages = (before + bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
  const auto around = passage.get(pages);
  ReadResult result = read_fully(direct_fd_.get(), around, begin);
  result.bytes = std::min(result.bytes - std::min(result.bytes, before), bytes.size());
  std::memcpy(bytes.data(), around.data() + before, result.bytes);
  return result;
}

}  // namespace ddp::ckpt
