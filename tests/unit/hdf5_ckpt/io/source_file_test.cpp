// SPDX-License-Identifier: Apache-2.0
// Reads pieces of a file with O_DIRECT and through the page cache, and compares the bytes.
#include "hdf5_ckpt/io/source_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

constexpr std::size_t kFileBytes = (2 << 20) + 777;

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(11);
  std::vector<std::byte> bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

FileDescriptor open_to_read(const std::filesystem::path& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

struct Piece {
  const char* name;
  std::uint64_t offset;
  std::size_t bytes;
  std::size_t misplaced;  // offset of the target's address from a page boundary
};

void PrintTo(const Piece& piece, std::ostream* out) {
  *out << piece.name;
}

class SourcePieces : public testing::TestWithParam<Piece> {};

// How to read the file. With `refused`, the file opens with O_DIRECT, but reading it fails with
// EINVAL.
enum class Way { cache, around_it, refused };

SourceFile open_source(const std::filesystem::path& path, Way way) {
  FileDescriptor fd = open_to_read(path);
  if (way == Way::cache) return SourceFile(std::move(fd));
  // This file can be opened, but reading it fails with EINVAL.
  FileDescriptor around =
      way == Way::refused ? open_to_read("/proc/self/ns/net") : open_around_cache(fd);
  return SourceFile(std::move(fd), std::move(around));
}

TEST_P(SourcePieces, MatchTheFile) {
  const test::TempDirectory directory;
  const auto all = random_bytes(kFileBytes);
  test::put_file_bytes(directory / "x", all);
  const auto [name, offset, size, misplaced] = GetParam();
  const std::size_t there = offset < all.size() ? std::min(size, all.size() - offset) : 0;
  for (const Way way : {Way::cache, Way::around_it, Way::refused})
    for (const bool has_place : {true, false}) {
      SourceFile file = open_source(directory / "x", way);
      AlignedBuffer memory;
      AlignedBuffer passage;
      const auto place =
          has_place ? memory.get(size + misplaced).subspan(misplaced) : std::span<std::byte>();
      const auto [bytes, code] = file.read(offset, size, place, passage);
      EXPECT_EQ(code, 0);
      ASSERT_EQ(bytes.size(), there) << static_cast<int>(way);
      EXPECT_TRUE(std::equal(
          bytes.begin(), bytes.end(),
          all.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(offset, all.size()))));
      if (has_place && misplaced == 0 && offset % kAlignment == 0 && size % kAlignment == 0) {
        EXPECT_EQ(bytes.data(), place.data()) << "without a copy";
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Table, SourcePieces,
    testing::Values(Piece{"whole pages to an aligned address", 8192, 1 << 20, 0},
                    Piece{"whole pages to another address", 8192, 1 << 20, 64},
                    Piece{"within pages", 8193, 1 << 20, 0},
                    Piece{"ends within a page", 4096, 300001, 0}, Piece{"small", 5000, 100, 3},
                    Piece{"to the end", kFileBytes - 500000, 500000, 8},
                    Piece{"across the end", kFileBytes - 300000, 500000, 8},
                    Piece{"across the end, in pages", 1 << 20, 2 << 20, 0},
                    Piece{"beyond the end", kFileBytes + 5000, 500000, 0},
                    Piece{"beyond the end, same page", kFileBytes + 5, 300000, 0},
                    Piece{"all", 0, kFileBytes, 16}));

std::size_t pages_in_cache(const std::filesystem::path& path) {
  const FileDescriptor fd = open_to_read(path);
  void* const memory = ::mmap(nullptr, kFileBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  std::vector<unsigned char> resident(kFileBytes / kAlignment + 1);
  EXPECT_EQ(::mincore(memory, kFileBytes, resident.data()), 0);
  ::munmap(memory, kFileBytes);
  return static_cast<std::size_t>(std::count_if(resident.begin(), resident.end(),
                                                [](unsigned char c) { return (c & 1) != 0; }));
}

TEST(SourceFile, DoesNotFillThePageCache) {
  const test::TempDirectory directory;
  struct statfs status = {};
  ASSERT_EQ(::statfs(directory.path().c_str(), &status), 0);
  if (status.f_type == TMPFS_MAGIC) GTEST_SKIP() << "a tmpfs is its own cache";
  test::put_file_bytes(directory / "x", random_bytes(kFileBytes));
  if (!FileDescriptor(::open((directory / "x").c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)))
    GTEST_SKIP() << "the file system of " << directory.path() << " has no O_DIRECT";
  constexpr std::size_t kSize = 1 << 20;
  for (const Way way : {Way::around_it, Way::cache}) {
    const FileDescriptor fd = open_to_read(directory / "x");
    ASSERT_EQ(::fsync(fd.get()), 0);
    ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
    SourceFile file = open_source(directory / "x", way);
    AlignedBuffer passage;
    EXPECT_EQ(file.read(100, kSize, {}, passage).bytes.size(), kSize);
    // The destination begins at a page boundary but ends within a page. Not every disk supports
    // such small writes.
    AlignedBuffer memory;
    EXPECT_EQ(file.read(0, kSize - 8, memory.get(kSize - 8), passage).bytes.size(), kSize - 8);
    if (way == Way::around_it) {
      EXPECT_EQ(pages_in_cache(directory / "x"), 0U);
    } else {
      EXPECT_GE(pages_in_cache(directory / "x"), kSize / kAlignment);
    }
  }
}

TEST(SourceFile, FallsBackToThePageCache) {
  // Files of /proc do not support O_DIRECT, but must be readable.
  SourceFile file = open_source("/proc/self/maps", Way::around_it);
  AlignedBuffer passage;
  const auto [bytes, code] = file.read(0, 1 << 20, {}, passage);
  EXPECT_EQ(code, 0);
  EXPECT_GT(bytes.size(), 100U);
}

}  // namespace
}  // namespace ddp::ckpt
