// SPDX-License-Identifier: Apache-2.0
// Damage to files after a save: truncated, flipped, zeroed, swapped, replaced by links. A damaged
// checkpoint is never loaded; the previous one is loaded instead.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <random>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "tests/unit/hdf5_ckpt/fault_matrix.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::small_model;
using test::TempDirectory;
using testing::HasSubstr;

// Steps 1 and 2. The tests damage the file of step 2 and restore it afterwards.
class Damage : public testing::Test {
 protected:
  Damage() {
    for (const std::uint64_t step : {1, 2}) test::save_step(root_, step);
    original_ = test::file_bytes(file_);
  }

  // Checks that both ways of loading reject step 2 and return step 1. Returns the reason.
  std::string reason_for_fallback() {
    const CheckpointDirectory directory(root_);
    test::ArraySet loaded = small_model(0).zeros();
    const auto by_reading = directory.load_newest(loaded.targets());
    const auto by_verifying = directory.newest_verified();
    if (!by_reading || !by_verifying) return "nothing was loaded";
    EXPECT_EQ(by_reading->checkpoint.manifest().step, 1U);
    EXPECT_EQ(by_verifying->checkpoint.manifest().step, 1U);
    EXPECT_EQ(loaded, small_model(1));
    return by_reading->skipped.empty() ? "" : by_reading->skipped[0];
  }

  // Returns the reason for rejecting step 2 with one byte changed. Every 100th call tests both ways
  // of loading; the other calls test only reading and verifying.
  std::string reason_with(std::size_t at, std::byte value) {
    put(at, value);
    std::string reason;
    if (changes_++ % 100 == 0) {
      reason = reason_for_fallback();
    } else {
      const Checkpoint checkpoint = Checkpoint::open(step_);
      reason = error_of([&] { checkpoint.verify({.threads = 1}); });
    }
    put(at, original_[at]);
    return reason;
  }

  // Returns the reason for rejecting step 2 with these bytes as its file.
  std::string reason_with(const std::vector<std::byte>& bytes) {
    test::put_file_bytes(file_, bytes);
    return reason_for_fallback();
  }

  // Returns the offsets in the file that belong to no array, in order.
  std::vector<std::size_t> metadata_bytes() const {
    std::vector<bool> claimed(original_.size());
    const Checkpoint checkpoint = Checkpoint::open(step_);
    for (const ArrayInfo& array : checkpoint.manifest().arrays)
      for (std::size_t i = 0; i < array.length; ++i) claimed[array.offset + i] = true;
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at < claimed.size(); ++at)
      if (!claimed[at]) places.push_back(at);
    return places;
  }

  void put(std::size_t at, std::byte value) {
    std::fstream file(file_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(std::to_integer<char>(value));
  }

  const TempDirectory root_{test::On::memory};
  const fs::path step_ = root_ / "step-00000002";
  const fs::path file_ = step_ / "model.h5";
  std::vector<std::byte> original_;
  std::size_t changes_ = 0;
};

TEST_F(Damage, EveryTruncationIsFound) {
  std::size_t cuts = 0;
  for (std::size_t size = 0; size < original_.size(); size += 4096, ++cuts) {
    fs::resize_file(file_, size);
    ASSERT_THAT(reason_for_fallback(), HasSubstr("'model.h5' has")) << size;
  }
  test::put_file_bytes(file_, original_);
  for (const int change : {-1, 1}) {
    fs::resize_file(file_, original_.size() + static_cast<std::size_t>(change));
    EXPECT_THAT(reason_for_fallback(), HasSubstr("and should have"));
  }
  test::expect_in_fault_matrix("file cut at every 4 KiB, and by one byte", cuts + 2);
}

TEST_F(Damage, EveryFlippedMetadataByteIsFound) {
  std::size_t flips = 0;
  for (const std::size_t at : metadata_bytes())
    for (int bit = 0; bit < 8; ++bit) {
      // Most of the space that libhdf5 reserves for metadata stays empty.
      const bool chosen = original_[at] != std::byte{0} || at % 64 == 0;
      if (!test::long_tests() && !(chosen && bit == static_cast<int>(at % 8))) continue;
      ASSERT_THAT(reason_with(at, original_[at] ^ std::byte(1 << bit)),
                  HasSubstr("the HDF5 metadata of 'model.h5' is damaged"))
          << at;
      ++flips;
    }
  test::expect_in_fault_matrix("bit flipped in a byte of HDF5's own metadata", flips);
}

TEST_F(Damage, FlippedDataBitsAreFound) {
  std::mt19937 random(7);
  const std::vector<std::size_t> metadata = metadata_bytes();
  const std::size_t wanted = test::long_tests() ? 20000 : 1000;
  std::size_t flips = 0;
  while (flips < wanted) {
    const std::size_t at = random() % original_.size();
    if (std::binary_search(metadata.begin(), metadata.end(), at)) continue;
    ASSERT_THAT(reason_with(at, original_[at] ^ std::byte(1 << (random() % 8))),
                HasSubstr("are damaged: crc32c is"))
        << at;
    ++flips;
  }
  test::expect_in_fault_matrix("bit flipped in a byte of an array", flips);
}

TEST_F(Damage, ReadOfOneArrayNamesItsDamagedBytes) {
  const Checkpoint checkpoint = Checkpoint::open(step_);
  test::flip_bit(file_, checkpoint.find("model/conv1.weight")->parts.front().offset + 40000);
  const auto read = [&](const char* name) { static_cast<void>(checkpoint.read(name)); };
  // Blocks have 32768 bytes.
  EXPECT_THAT(error_of([&] { read("model/conv1.weight"); }),
              HasSubstr("array 'model/conv1.weight': bytes 32768 to 65535 (in 'model.h5' at"));
  EXPECT_NO_THROW(read("model/fc.weight"));
}

struct PageFault {
  const char* name;
  std::function<void(std::vector<std::byte>& bytes, std::size_t page, std::size_t size)> change;
};

TEST_F(Damage, ChangedPagesAreFound) {
  const std::vector<std::byte> old = test::file_bytes(root_ / "step-00000001/model.h5");
  const std::vector<PageFault> faults = {{"page of 4 KiB zeroed",
                                          [](auto& bytes, std::size_t page, std::size_t size) {
                                            std::fill_n(bytes.data() + page, size, std::byte{0});
                                          }},
                                         {"page of 4 KiB swapped with the next",
                                          [](auto& bytes, std::size_t page, std::size_t size) {
                                            std::byte* const first = bytes.data() + page;
                                            if (page + 2 * size <= bytes.size())
                                              std::swap_ranges(first, first + size, first + size);
                                          }},
                                         {"page of 4 KiB from the checkpoint before",
                                          [&old](auto& bytes, std::size_t page, std::size_t size) {
                                            std::copy_n(old.data() + page, size,
                                                        bytes.data() + page);
                                          }}};
  for (const auto& [name, change] : faults) {
    std::size_t found = 0;
    for (std::size_t page = 0; page < original_.size(); page += 4096) {
      std::vector<std::byte> bytes = original_;
      change(bytes, page, std::min<std::size_t>(4096, bytes.size() - page));
      if (bytes == original_) continue;  // unused metadata space
      EXPECT_THAT(reason_with(bytes), HasSubstr("damaged")) << name << ": " << page;
      ++found;
    }
    test::expect_in_fault_matrix(name, found);
  }
}

TEST_F(Damage, OldFileUnderANewManifestIsFound) {
  EXPECT_THAT(reason_with(test::file_bytes(root_ / "step-00000001/model.h5")),
              HasSubstr("damaged"));
}

TEST_F(Damage, EveryChangedManifestByteIsFound) {
  const fs::path manifest = step_ / "manifest.json";
  const std::vector<std::byte> bytes = test::file_bytes(manifest);
  std::size_t flips = 0;
  for (std::size_t at = 0; at < bytes.size(); at += test::long_tests() ? 1 : 7) {
    std::vector<std::byte> flipped = bytes;
    flipped[at] ^= std::byte{0x20};
    test::put_file_bytes(manifest, flipped);
    ASSERT_THAT(reason_for_fallback(), HasSubstr("'manifest.json' is not valid")) << at;
    ++flips;
  }
  test::expect_in_fault_matrix("bit flipped in a byte of the manifest", flips);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, bytes.size() - 1}) {
    test::put_file_bytes(manifest, std::span(bytes).first(size));
    EXPECT_THAT(reason_for_fallback(), HasSubstr("'manifest.json' is not valid"));
  }
  fs::resize_file(manifest, kMaxManifestBytes + 1);
  EXPECT_THAT(reason_for_fallback(), HasSubstr("larger than"));
}

TEST_F(Damage, OnlyRegularFilesAreRead) {
  const fs::path elsewhere = root_ / "elsewhere";
  const struct {
    const char* file;
    std::function<void(const fs::path&)> replace;
    const char* expected;
  } cases[] = {
      {"model.h5", [](const fs::path&) {}, "'model.h5' cannot be opened: No such file"},
      {"model.h5", [&](const fs::path& file) { fs::create_symlink(elsewhere, file); },
       "'model.h5' is a symbolic link"},
      // Opening a pipe for reading would wait forever for a writer.
      {"model.h5", [](const fs::path& file) { ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0); },
       "'model.h5' is not a regular file"},
      {"model.h5", [](const fs::path& file) { fs::create_directory(file); },
       "'model.h5' is not a regular file"},
      {"manifest.json", [&](const fs::path& file) { fs::create_symlink(elsewhere, file); },
       "'manifest.json' is a symbolic link"},
  };
  for (const auto& [name, replace, expected] : cases) {
    const fs::path file = step_ / name;
    fs::rename(file, elsewhere);
    replace(file);
    EXPECT_THAT(reason_for_fallback(), HasSubstr(expected));
    fs::remove(file);
    fs::rename(elsewhere, file);
  }
}

TEST_F(Damage, FileThatShrinksDuringAReadIsFound) {
  const Checkpoint checkpoint = Checkpoint::open(step_);
  const ReadOptions cutting{1,
                            [&](std::uint64_t, std::uint64_t) { fs::resize_file(file_, 70000); }};
  EXPECT_THAT(error_of([&] { checkpoint.verify(cutting); }),
              HasSubstr("are missing: the file is truncated"));
}

}  // namespace
}  // namespace ddp::ckpt
