// Pieces of a file, read around the page cache and through it, are the same bytes.
#include "hdf5_ckpt/detail/source_file.h"

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

UniqueFd open_to_read(const std::filesystem::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

struct Piece {
  const char* name;
  std::uint64_t offset;
  std::size_t bytes;
  std::size_t misplaced;  // bytes of the target's address behind a page's begin
};

void PrintTo(const Piece& piece, std::ostream* out) {
  *out << piece.name;
}

class SourcePieces : public testing::TestWithParam<Piece> {};

TEST_P(SourcePieces, AreThoseOfTheFile) {
  const test::TempFolder folder;
  const auto all = random_bytes(kFileBytes);
  test::put_file_bytes(folder / "x", all);
  const std::uint64_t offset = GetParam().offset;
  const std::size_t bytes = GetParam().bytes;
  const std::size_t misplaced = GetParam().misplaced;
  for (const bool direct_io : {true, false}) {
    SourceFile file(open_to_read(folder / "x"), direct_io);
    AlignedBuffer memory;
    AlignedBuffer passage;
    const auto target = memory.get(bytes + misplaced).subspan(misplaced);
    const ReadResult result = file.read(target, offset, passage);
    EXPECT_EQ(result.code, 0);
    const std::size_t there = offset < all.size() ? std::min(bytes, all.size() - offset) : 0;
    ASSERT_EQ(result.bytes, there) << "direct: " << direct_io;
    EXPECT_TRUE(
        std::equal(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(there),
                   all.begin() + static_cast<std::ptrdiff_t>(std::min(offset, all.size()))));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, SourcePieces,
    testing::Values(Piece{"whole pages to a page", 8192, 1 << 20, 0},
                    Piece{"whole pages beside a page", 8192, 1 << 20, 64},
                    Piece{"within pages", 8193, 1 << 20, 0},
                    Piece{"ends within a page", 4096, 300001, 0}, Piece{"small", 5000, 100, 3},
                    Piece{"to the end", kFileBytes - 500000, 500000, 8},
                    Piece{"over the end", kFileBytes - 300000, 500000, 8},
                    Piece{"over the end, in pages", 1 << 20, 2 << 20, 0},
                    Piece{"behind the end", kFileBytes + 5000, 500000, 0},
                    Piece{"behind the end, same page", kFileBytes + 5, 300000, 0},
                    Piece{"all", 0, kFileBytes, 16}));

std::size_t pages_in_cache(const std::filesystem::path& path) {
  const UniqueFd fd = open_to_read(path);
  void* const memory = ::mmap(nullptr, kFileBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  std::vector<unsigned char> resident(kFileBytes / kAlignment + 1);
  EXPECT_EQ(::mincore(memory, kFileBytes, resident.data()), 0);
  ::munmap(memory, kFileBytes);
  return static_cast<std::size_t>(std::count_if(resident.begin(), resident.end(),
                                                [](unsigned char c) { return (c & 1) != 0; }));
}

TEST(SourceFile, LeavesTheCacheAlone) {
  const test::TempFolder folder;
  struct statfs status = {};
  ASSERT_EQ(::statfs(folder.path().c_str(), &status), 0);
  if (status.f_type == TMPFS_MAGIC) GTEST_SKIP() << "a tmpfs is its own cache";
  test::put_file_bytes(folder / "x", random_bytes(kFileBytes));
  if (!UniqueFd(::open((folder / "x").c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)))
    GTEST_SKIP() << "the file system of " << folder.path() << " has no O_DIRECT";
  for (const bool direct_io : {true, false}) {
    UniqueFd fd = open_to_read(folder / "x");
    ASSERT_EQ(::fsync(fd.get()), 0);
    ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
    SourceFile file(std::move(fd), direct_io);
    AlignedBuffer passage;
    std::vector<std::byte> target(1 << 20);
    EXPECT_EQ(file.read(target, 100, passage).bytes, target.size());
    if (direct_io) {
      EXPECT_EQ(pages_in_cache(folder / "x"), 0U);
    } else {
      EXPECT_GE(pages_in_cache(folder / "x"), target.size() / kAlignment);
    }
  }
}

TEST(SourceFile, ReadsWhatCannotBeReadAroundTheCache) {
  // Files of /proc refuse O_DIRECT; what they hold is read all the same.
  SourceFile file(open_to_read("/proc/self/maps"), true);
  AlignedBuffer passage;
  std::vector<std::byte> target(1 << 20);
  const ReadResult result = file.read(target, 0, passage);
  EXPECT_EQ(result.code, 0);
  EXPECT_GT(result.bytes, 100U);
}

}  // namespace
}  // namespace ddp::ckpt
