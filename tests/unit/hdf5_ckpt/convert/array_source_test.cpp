// SPDX-License-Identifier: Apache-2.0
// The arrays of a source are the same, whether it is a checkpoint or a file of another program.
#include "hdf5_ckpt/convert/array_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "hdf5_ckpt/core/error.h"
#include "tests/unit/error_of.h"
#include "tests/unit/hdf5_ckpt/convert/torch_files.h"
#include "tests/unit/hdf5_ckpt/support.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::ArraySet;
using test::save_arrays;
using test::TempDirectory;
using testing::HasSubstr;

ArraySet weights(const std::string& prefix = "") {
  ArraySet set;
  set.add(prefix + "a.weight", DType::float32, {3, 5});
  set.add(prefix + "b", DType::bfloat16, {});
  set.add(prefix + "empty", DType::int64, {0, 2});
  return set;
}

template <class Write>
fs::path written(const fs::path& path, const ArraySet& arrays, const Write& write) {
  const auto views = arrays.views();
  std::vector<ArrayHeader> headers;
  for (const ArrayView& view : views) headers.push_back({view.name, view.dtype, view.shape});
  write(path, headers, [&](std::size_t i, const TakeBytes& take) { take(views[i].bytes); });
  return path;
}

// All arrays of the source.
ArraySet contents(const ArraySource& source) {
  std::vector<std::vector<std::byte>> bytes;
  for (const auto& array : source.arrays())
    bytes.emplace_back(byte_count(array.dtype, array.shape).value());
  std::vector<ArraySource::Read> reads;
  for (std::size_t i = 0; i < bytes.size(); ++i) reads.push_back({i, bytes[i]});
  source.read(reads);
  ArraySet set;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    set.add_bytes(source.arrays()[i].name, source.arrays()[i].dtype, source.arrays()[i].shape,
                  bytes[i]);
  return set;
}

// The contents of `prefix` + name depend on its whole name.
ArraySet renamed(const ArraySet& set, std::size_t prefix) {
  ArraySet result;
  for (const auto& view : set.views())
    result.add_bytes(view.name.substr(prefix), view.dtype, view.shape,
                     {view.bytes.begin(), view.bytes.end()});
  return result;
}

TEST(ArraySource, ReadsFilesOfOtherPrograms) {
  const TempDirectory directory(test::On::memory);
  const auto set = weights();
  EXPECT_TRUE(contents(ArraySource::open(
                  written(directory / "w.safetensors", set, write_safetensors))) == set);
  EXPECT_TRUE(contents(ArraySource::open(written(directory / "w.pt", set, write_torch_file))) ==
              set);
}

TEST(ArraySource, ReadsTheModelOfACheckpoint) {
  const TempDirectory directory(test::On::memory);
  auto set = weights("model/");
  auto all = weights("model/");
  all.add("optim/a.weight/exp_avg", DType::float32, {3, 5});
  save_arrays(directory / "root", 10, all);
  const auto expected = renamed(set, 6);
  EXPECT_TRUE(contents(ArraySource::open(directory / "root" / "step-00000010")) == expected);
  const auto optim = ArraySource::open(directory / "root", "optim/");
  ASSERT_EQ(optim.arrays().size(), 1U);
  EXPECT_EQ(optim.arrays()[0].name, "a.weight/exp_avg");
}

TEST(ArraySource, TakesTheNewestWholeCheckpointOfADirectory) {
  const TempDirectory directory(test::On::memory);
  const auto root = directory / "root";
  for (const std::uint64_t step : {1, 2, 3}) save_arrays(root, step, weights("model/"));
  EXPECT_EQ(ArraySource::open(root).path().filename(), "step-00000003");
  fs::remove(root / "step-00000003" / "manifest.json");
  EXPECT_EQ(ArraySource::open(root).path().filename(), "step-00000002");
}

TEST(ArraySource, ReadsTheSameFromBothFormatsOfARealLibrary) {
  const auto directory = fs::path(SLURM_DDP_SOURCE_DIR) / "tests/interop/weights";
  const auto torch_save = ArraySource::open(directory / "gpt2.pt", "transformer.");
  const auto safetensors = ArraySource::open(directory / "gpt2.safetensors", "transformer.");
  ASSERT_EQ(torch_save.arrays().size(), 28U);
  EXPECT_TRUE(contents(torch_save) == contents(safetensors));
}

TEST(ArraySource, ReadsAModelInSeveralFiles) {
  const TempDirectory directory(test::On::memory);
  const auto set = weights();
  const auto views = set.views();
  nlohmann::json map;
  for (std::size_t i = 0; i < views.size(); ++i) {
    ArraySet one;
    one.add_bytes(views[i].name, views[i].dtype, views[i].shape,
                  {views[i].bytes.begin(), views[i].bytes.end()});
    const std::string file = "model-0000" + std::to_string(i + 1) + "-of-00003.safetensors";
    written(directory / file, one, write_safetensors);
    map[views[i].name] = file;
  }
  const auto index = directory / "model.safetensors.index.json";
  ddp::test::write(index, nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_TRUE(contents(ArraySource::open(directory.path())) == set);
  EXPECT_TRUE(contents(ArraySource::open(index)) == set);
  EXPECT_THAT(error_of([&] { ArraySource::open(directory / "model-00002-of-00003.safetensors"); }),
              HasSubstr("it is only part 2 of 3 of a model; name the directory or"));
}

TEST(ArraySource, CompletesAPrefix) {
  const TempDirectory directory(test::On::memory);
  save_arrays(directory / "root", 1, weights("model/"));
  EXPECT_EQ(ArraySource::open(directory / "root", "model").arrays()[0].name, "a.weight");
  written(directory / "w.pt", weights("net."), write_torch_file);
  EXPECT_EQ(ArraySource::open(directory / "w.pt", "net").arrays()[0].name, "a.weight");
}

TEST(ArraySource, NamesArraysThatCannotBeRead) {
  const TempDirectory directory(test::On::memory);
  ddp::test::write(
      directory / "w.pt",
      test::torch_file(test::dict(test::pickled("w") + test::tensor("FloatStorage", 1) +
                                  test::pickled("q") + test::tensor("QInt8Storage", 1)),
                       test::raw<float>({1})));
  const auto source = ArraySource::open(directory / "w.pt");
  ASSERT_EQ(source.unreadable().size(), 1U);
  EXPECT_EQ(source.unreadable()[0].name, "q");
}

TEST(ArraySource, NamesTheDirectoryOfACheckpointsFile) {
  const TempDirectory directory(test::On::memory);
  save_arrays(directory / "root", 1, weights("model/"));
  const auto step = directory / "root" / "step-00000001";
  EXPECT_THAT(error_of([&] { ArraySource::open(step / "model.h5"); }),
              HasSubstr("it is one file of a checkpoint, which is read as a whole; name the "
                        "directory '" +
                        step.string() + "'"));
}

TEST(ArraySource, RefusesWhatIsNotASource) {
  const TempDirectory directory(test::On::memory);
  const auto open = [&](const char* name, std::optional<std::string> prefix = std::nullopt) {
    return error_of([&] { ArraySource::open(directory / name, prefix); });
  };
  EXPECT_THAT(open("none.pt"), HasSubstr("there is no file or checkpoint '"));
  fs::create_directory(directory / "empty");
  EXPECT_THAT(open("empty"), HasSubstr("there is no checkpoint in '"));
  ddp::test::write(directory / "w.h5", "\x89HDF\r\n\x1a\n and more");
  EXPECT_THAT(open("w.h5"), HasSubstr("is a plain HDF5 file; convert it first: ddp-ckpt convert"));
  ddp::test::write(directory / "w.txt", "not a zip");
  EXPECT_THAT(open("w.txt"), HasSubstr("w.txt' cannot be read: "));
  ddp::test::write(directory / "zero.pt", "");
  EXPECT_THAT(open("zero.pt"), HasSubstr("cannot be read: the file is empty"));
  written(directory / "w.safetensors", weights(), write_safetensors);
  EXPECT_THAT(
      open("w.safetensors", "net."),
      HasSubstr("has no array whose name starts with 'net.'; one of its names is 'a.weight'"));
  save_arrays(directory / "root", 1, weights("other/"));
  EXPECT_THAT(open("root"),
              HasSubstr("starts with 'model/'; one of its names is 'other/a.weight'"));
}

TEST(ArraySource, NoticesDamageOfACheckpoint) {
  const TempDirectory directory(test::On::memory);
  save_arrays(directory / "root", 1, weights("model/"));
  const auto step = directory / "root" / "step-00000001";
  test::damage(step, "model/a.weight");
  const auto source = ArraySource::open(step);
  EXPECT_THROW(contents(source), DamagedError);
}

}  // namespace
}  // namespace ddp::ckpt
