// What happens to files after they were saved: cut, flipped, zeroed, swapped, replaced by links.
// No such checkpoint is ever loaded; the one before it is.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/error.h"
#include "support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::small_model;
using test::TempFolder;
using testing::AnyOf;
using testing::HasSubstr;

// Steps 1 and 2; the file of step 2 is what gets damaged, and put back afterwards.
class Damage : public testing::Test {
 protected:
  void SetUp() override {
    CheckpointDirectory directory(root_.path(), test::small_options());
    for (const std::uint64_t step : {1, 2})
      directory.save(step, test::test_owner(), small_model(step).views(), test::test_info());
    original_ = test::file_bytes(file_);
  }

  // Neither way of loading takes step 2; both give step 1. Returns why.
  std::string reason_for_fallback() {
    const CheckpointDirectory directory(root_.path());
    test::ArraySet loaded = small_model(0).zeros();
    const auto by_reading = directory.load_newest(loaded.targets());
    const auto by_verifying = directory.newest_verified();
    if (!by_reading || !by_verifying) return "nothing was loaded";
    EXPECT_EQ(by_reading->checkpoint.manifest().step, 1U);
    EXPECT_EQ(by_verifying->checkpoint.manifest().step, 1U);
    EXPECT_EQ(loaded, small_model(1));
    return by_reading->skipped.empty() ? "" : by_reading->skipped[0];
  }

  void put_back() { test::put_file_bytes(file_, original_); }

  const TempFolder root_{test::On::kMemory};
  const fs::path step_ = root_ / "step-00000002";
  const fs::path file_ = step_ / "model.h5";
  std::vector<std::byte> original_;
};

TEST_F(Damage, EveryCutIsFound) {
  for (std::size_t size = 0; size < original_.size(); size += 4096) {
    fs::resize_file(file_, size);
    ASSERT_THAT(reason_for_fallback(), HasSubstr("'model.h5' has")) << size;
  }
  put_back();
  for (const int change : {-1, 1}) {
    fs::resize_file(file_, original_.size() + static_cast<std::size_t>(change));
    EXPECT_THAT(reason_for_fallback(), HasSubstr("and should have"));
  }
}

TEST_F(Damage, FlippedBitsAreFoundInDataAndMetadata) {
  std::mt19937 random(7);
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < 300; ++at) places.push_back(at);
  for (int i = 0; i < 500; ++i) places.push_back(random() % original_.size());
  int in_metadata = 0;
  for (const std::size_t at : places) {
    std::fstream file(file_, std::ios::binary | std::ios::in | std::ios::out);
    const auto put = [&](std::byte value) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(std::to_integer<char>(value));
      file.flush();
    };
    put(original_[at] ^ std::byte(1 << (random() % 8)));
    const std::string reason = reason_for_fallback();
    ASSERT_THAT(reason, AnyOf(HasSubstr("the HDF5 metadata of 'model.h5' is damaged"),
                              HasSubstr("are damaged: crc32c is")))
        << at;
    if (reason.find("metadata") != std::string::npos) ++in_metadata;
    put(original_[at]);
  }
  EXPECT_GT(in_metadata, 300);
  EXPECT_LT(in_metadata, 750);
}

TEST_F(Damage, AReadOfOneArrayNamesItsDamagedBytes) {
  const Checkpoint checkpoint = Checkpoint::open(step_);
  const ArrayInfo* info = checkpoint.find("model/conv1.weight");
  std::vector<std::byte> bytes = original_;
  bytes[info->offset + 40000] ^= std::byte{4};
  test::put_file_bytes(file_, bytes);
  const auto read = [&](const char* name) { static_cast<void>(checkpoint.read(name)); };
  // Blocks have 32768 bytes.
  EXPECT_THAT(test::error_of([&] { read("model/conv1.weight"); }),
              HasSubstr("array 'model/conv1.weight': bytes 32768 to 65535 (in 'model.h5' at"));
  EXPECT_NO_THROW(read("model/fc.weight"));
}

TEST_F(Damage, ZeroedPagesAreFound) {
  for (std::size_t page = 0; page < original_.size(); page += 4096) {
    std::vector<std::byte> bytes = original_;
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(page);
    const auto end = begin + std::min<std::ptrdiff_t>(4096, bytes.end() - begin);
    std::fill(begin, end, std::byte{0});
    if (bytes == original_) continue;  // room for metadata that was not needed
    test::put_file_bytes(file_, bytes);
    ASSERT_THAT(reason_for_fallback(), HasSubstr("damaged")) << page;
  }
}

TEST_F(Damage, SwappedBlocksAreFound) {
  const ArrayInfo info = *Checkpoint::open(step_).find("model/conv1.weight");
  std::vector<std::byte> bytes = original_;
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(info.offset);
  std::swap_ranges(first, first + 32768, first + 32768);
  test::put_file_bytes(file_, bytes);
  EXPECT_THAT(reason_for_fallback(), HasSubstr("model/conv1.weight"));
}

TEST_F(Damage, AnOldFileUnderANewManifestIsFound) {
  fs::copy_file(root_ / "step-00000001/model.h5", file_, fs::copy_options::overwrite_existing);
  EXPECT_THAT(reason_for_fallback(), HasSubstr("damaged"));
}

TEST_F(Damage, EveryByteOfTheManifestCounts) {
  const fs::path manifest = step_ / "manifest.json";
  const std::vector<std::byte> bytes = test::file_bytes(manifest);
  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    std::vector<std::byte> flipped = bytes;
    flipped[at] ^= std::byte{0x20};
    test::put_file_bytes(manifest, flipped);
    ASSERT_THAT(reason_for_fallback(), HasSubstr("'manifest.json' is not valid")) << at;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, bytes.size() - 1}) {
    test::put_file_bytes(manifest, std::span(bytes).first(size));
    EXPECT_THAT(reason_for_fallback(), HasSubstr("'manifest.json' is not valid"));
  }
  fs::resize_file(manifest, kMaxManifestBytes + 1);
  EXPECT_THAT(reason_for_fallback(), HasSubstr("larger than"));
}

TEST_F(Damage, OnlyPlainFilesAreRead) {
  const fs::path elsewhere = root_ / "elsewhere.h5";
  fs::rename(file_, elsewhere);
  fs::create_symlink(elsewhere, file_);
  EXPECT_THAT(reason_for_fallback(), HasSubstr("'model.h5' is a symbolic link"));
  fs::remove(file_);
  EXPECT_THAT(reason_for_fallback(), HasSubstr("'model.h5' cannot be opened: No such file"));
  // Opening a pipe for reading would wait for a writer for ever.
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THAT(reason_for_fallback(), HasSubstr("'model.h5' is not a plain file"));
  fs::remove(file_);
  fs::create_directory(file_);
  EXPECT_THAT(reason_for_fallback(), HasSubstr("'model.h5' is not a plain file"));
  fs::remove(file_);
  fs::rename(elsewhere, file_);
  fs::rename(step_ / "manifest.json", root_ / "m.json");
  fs::create_symlink(root_ / "m.json", step_ / "manifest.json");
  EXPECT_THAT(reason_for_fallback(), HasSubstr("'manifest.json' is a symbolic link"));
}

TEST_F(Damage, AFileThatShrinksWhileItIsReadIsFound) {
  const Checkpoint checkpoint = Checkpoint::open(step_);
  const ReadOptions cutting{1,
                            [&](std::uint64_t, std::uint64_t) { fs::resize_file(file_, 70000); }};
  EXPECT_THAT(test::error_of([&] { checkpoint.verify(cutting); }),
              HasSubstr("are missing: the file has been cut off"));
}

}  // namespace
}  // namespace ddp::ckpt
