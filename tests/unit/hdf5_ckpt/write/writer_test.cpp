// SPDX-License-Identifier: Apache-2.0
// Writing one HDF5 file: the contents round-trip on every path, equal inputs give equal bytes, and
// the calls that make it durable have the required order.

#include "hdf5_ckpt/write/writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/io/aligned_buffer.h"
#include "hdf5_ckpt/write/skeleton.h"
#include "tests/unit/hdf5_ckpt/faulty_ops.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

using test::ArraySet;
using test::FaultyOps;
using test::Names;
using test::TempDirectory;
using testing::AllOf;
using testing::HasSubstr;

const nlohmann::json kNoAttributes = nlohmann::json::object();

// Returns every dtype with every kind of shape: scalar, empty, small, aligned, larger with an odd
// tail.
ArraySet every_kind() {
  ArraySet set;
  for (const DType dtype : kAllDTypes)
    for (const Shape& shape : std::initializer_list<Shape>{
             {}, {0}, {3, 0, 2}, {1}, {7, 3}, {65536}, {257, 259}, {2, 1, 3, 1, 5}})
      set.add(std::string(dtype_name(dtype)) + "/" + shape_text(shape), dtype, shape);
  return set;
}

void expect_round_trip(const ArraySet& set, const SaveOptions& options,
                       FileOps& ops = system_file_ops()) {
  const TempDirectory root;
  CheckpointDirectory directory(root, options, ops);
  const Saved saved = directory.save(1, test::test_owner(), set.views(), test::test_info());
  const Checkpoint checkpoint = Checkpoint::open(saved.path);
  checkpoint.verify();
  EXPECT_TRUE(test::holds(checkpoint, set));
}

TEST(Writer, EveryDtypeAndShapeRoundTrips) {
  expect_round_trip(every_kind(), {});
}

TEST(Writer, EmptySetRoundTrips) {
  expect_round_trip({}, {});
}

struct Path {
  const char* name;
  unsigned threads;
  std::uint64_t block_bytes;
  bool direct;
};

TEST(Writer, EveryPathGivesTheSameFile) {
  for (const Path& path :
       {Path{"one thread", 1, 4 << 20, true}, Path{"threads", 4, 65536, true},
        Path{"tiny blocks", 2, 4096, true}, Path{"page cache", 2, 65536, false}}) {
    SCOPED_TRACE(path.name);
    SaveOptions options;
    options.write = {path.threads, path.block_bytes, path.direct, {}};
    expect_round_trip(every_kind(), options);
  }
}

TEST(Writer, FileSystemsWithMissingFeaturesGiveTheSameFile) {
  const std::vector<std::pair<const char*, std::function<void(FaultyOps&)>>> kinds = {
      {"no fallocate", &FaultyOps::without_fallocate},
      {"no O_DIRECT at open", &FaultyOps::without_direct_open},
      {"no O_DIRECT at write", &FaultyOps::without_direct_write},
      {"no rename flags", &FaultyOps::without_rename_flags},
      {"short writes", [](FaultyOps& ops) { ops.with_short_writes(5000); }},
      {"interruptions", &FaultyOps::with_interruptions},
      {"unknown free space", [](FaultyOps& ops) { ops.with_free_bytes(-1); }}};
  for (const auto& [name, change] : kinds) {
    SCOPED_TRACE(name);
    FaultyOps ops;
    change(ops);
    expect_round_trip(test::small_model(1), test::small_options(), ops);
  }
}

TEST(Writer, MemoryNeedNotBeAligned) {
  // The address is neither aligned for O_DIRECT nor a multiple of the element size.
  std::vector<std::byte> memory(300001);
  for (std::size_t i = 0; i < memory.size(); ++i)
    memory[i] = static_cast<std::byte>(i * 7 + i / 251);
  const auto bytes = std::span<const std::byte>(memory).subspan(1);
  const TempDirectory dir;
  const ArrayView view{"w", DType::float32, {75000}, bytes};
  CheckpointDirectory directory(dir, test::small_options());
  const Saved saved = directory.save(1, test::test_owner(), {&view, 1}, test::test_info());
  const OwnedArray read = Checkpoint::open(saved.path).read("w");
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), read.bytes.begin(), read.bytes.end()));
}

TEST(Writer, ChecksumsMatchTheBytes) {
  const TempDirectory dir;
  const ArraySet set = test::small_model(1);
  WriteOptions options;
  options.block_bytes = 4096;
  const FileRecord record = write_hdf5_file(dir / "a.h5", set.views(), kNoAttributes, options);
  for (const ArrayView& view : set.views()) {
    const auto info = std::find_if(record.arrays.begin(), record.arrays.end(),
                                   [&](const ArrayInfo& array) { return array.name == view.name; });
    ASSERT_NE(info, record.arrays.end());
    EXPECT_EQ(info->crc32c, crc32c(view.bytes));
    ASSERT_EQ(info->block_crc32c.size(), (view.bytes.size() + 4095) / 4096);
    for (std::size_t block = 0; block < info->block_crc32c.size(); ++block)
      EXPECT_EQ(info->block_crc32c[block],
                crc32c(view.bytes.subspan(block * 4096)
                           .first(std::min<std::size_t>(4096, view.bytes.size() - block * 4096))));
  }
}

TEST(Writer, SameArraysGiveTheSameBytes) {
  const TempDirectory dir;
  const ArraySet set = every_kind();
  const nlohmann::json attributes = {{"step", 7}, {"note", "n"}};
  std::vector<ArrayView> views = set.views();
  write_hdf5_file(dir / "a.h5", views, attributes, {.threads = 1});
  // Waits more than a second, because HDF5 would record times in seconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  std::reverse(views.begin(), views.end());
  write_hdf5_file(dir / "b.h5", views, attributes, {.threads = 3});
  EXPECT_EQ(test::file_bytes(dir / "a.h5"), test::file_bytes(dir / "b.h5"));
}

// Returns the index of the first call from `start` on for which `wanted` is true.
std::size_t find_call(const std::vector<FaultyOps::Call>& calls, std::size_t start,
                      const std::function<bool(const FaultyOps::Call&)>& wanted) {
  while (start < calls.size() && !wanted(calls[start])) ++start;
  return start;
}

TEST(Writer, CallsAreInTheOrderRequiredForDurability) {
  const TempDirectory top;
  const std::filesystem::path root = top / "ckpt";
  FaultyOps ops;
  test::save_step(root, 1, test::small_options(), ops);
  const auto& calls = ops.calls();
  const auto is = [](const char* what, const std::string& path_end) {
    return [what, path_end](const FaultyOps::Call& call) {
      return call.what == what && call.path.ends_with(path_end);
    };
  };
  // ROOT is created and its name is durable before anything is built in it.
  const auto root_made = find_call(calls, 0, is("mkdir", "/ckpt"));
  const auto root_durable = find_call(calls, root_made, is("fsync", top.path().filename()));
  const auto reserved = find_call(calls, root_durable, is("fallocate", "/model.h5"));
  const auto first_data = find_call(calls, 0, is("pwrite", "/model.h5"));
  EXPECT_LT(reserved, first_data);
  // The order is: data, fsync, exactly one write (the signature), fsync.
  const auto data_durable = find_call(calls, first_data, is("fsync", "/model.h5"));
  EXPECT_TRUE(is("pwrite", "/model.h5")(calls[data_durable + 1]));
  EXPECT_TRUE(is("fsync", "/model.h5")(calls[data_durable + 2]));
  EXPECT_EQ(find_call(calls, data_durable + 2, is("pwrite", "/model.h5")), calls.size());
  const auto manifest = find_call(calls, data_durable + 2, is("pwrite", "/manifest.json"));
  const auto manifest_durable = find_call(calls, manifest, is("fsync", "/manifest.json"));
  const auto draft = test::test_owner().text();
  const auto draft_durable = find_call(calls, manifest_durable, is("fsync", draft));
  const auto renamed = find_call(calls, draft_durable, is("rename", "/step-00000001"));
  const auto renamed_durable = find_call(calls, renamed, is("fsync", "/ckpt"));
  const auto hint = find_call(calls, renamed_durable, is("rename", "/latest"));
  EXPECT_LT(hint, calls.size());
}

// Returns the bytes that one save of `bytes` passes to pwrite, through the page cache and directly.
std::array<std::size_t, 2> bytes_written(std::span<const std::byte> bytes, bool direct_io) {
  const TempDirectory dir;
  FaultyOps ops;
  const ArrayView view{"w", DType::uint8, {bytes.size()}, bytes};
  const WriteOptions options{.threads = 1, .direct_io = direct_io};
  write_hdf5_file(dir / "a.h5", {&view, 1}, kNoAttributes, options, ops);
  std::array<std::size_t, 2> sizes = {0, 0};
  for (const auto& call : ops.calls())
    if (call.what == "pwrite") sizes[call.direct ? 1 : 0] += call.size;
  return sizes;
}

TEST(Writer, OnlyWholePagesBypassThePageCache) {
  AlignedBuffer buffer;
  const std::span<std::byte> memory = buffer.get(300000);
  std::fill(memory.begin(), memory.end(), std::byte{1});
  const auto cached = bytes_written(memory.first(200000), false);
  const auto direct = bytes_written(memory.first(200000), true);
  EXPECT_EQ(cached[1], 0U);
  if (direct[1] == 0) GTEST_SKIP() << "no O_DIRECT on the file system of temporary files";
  EXPECT_EQ(direct[1], 196608U);  // 48 * 4096
  EXPECT_EQ(direct[0] + direct[1], cached[0]);
  // Unaligned memory is copied to aligned memory.
  EXPECT_EQ(bytes_written(memory.subspan(64, 200000), true), direct);
  // A small array is not worth the copy.
  EXPECT_EQ(bytes_written(memory.subspan(64, 60000), true)[1], 0U);
}

TEST(Writer, FullDiskIsDetectedBeforeAnyData) {
  const TempDirectory dir;
  const ArraySet set = test::small_model(1);
  for (const bool known : {true, false}) {
    FaultyOps ops(known ? test::Fault::none : test::Fault::error, 2, ENOSPC);
    if (known) ops.with_free_bytes(1000);
    EXPECT_THAT(
        error_of([&] { write_hdf5_file(dir / "a.h5", set.views(), kNoAttributes, {}, ops); }),
        AllOf(HasSubstr("cannot reserve"), HasSubstr("No space left on device; free space there")));
    for (const auto& call : ops.calls()) EXPECT_NE(call.what, "pwrite");
    EXPECT_TRUE(test::names_in(dir).empty());
  }
}

TEST(Writer, ExistingFileIsNotReplaced) {
  const TempDirectory dir;
  const std::vector<std::byte> before(10, std::byte{7});
  test::put_file_bytes(dir / "a.h5", before);
  EXPECT_THAT(error_of([&] { write_hdf5_file(dir / "a.h5", {}, kNoAttributes); }),
              HasSubstr("File exists"));
  EXPECT_EQ(test::file_bytes(dir / "a.h5"), before);
}

TEST(Writer, ErrorNamesWrongArrays) {
  const TempDirectory dir;
  const std::vector<std::byte> bytes(8);
  const struct {
    std::vector<ArrayView> arrays;
    const char* expected;
  } cases[] = {
      {{{"w", DType::float32, {3}, bytes}}, "'w' of float32 [3] has 8 bytes"},
      {{{"a//b", DType::float32, {2}, bytes}}, "'a//b' starts or ends"},
      {{{"w", DType::float32, {2}, bytes}, {"w", DType::float32, {2}, bytes}}, "'w' appears twice"},
      {{{"w", DType::float32, {2}, bytes}, {"w/x", DType::float32, {2}, bytes}},
       "'w' is an array and also the group of 'w/x'"},
      {{{"w", DType::int8, Shape(33, 1), bytes}}, "33 dimensions"},
      {{{"w", DType::int8, {1ULL << 62, 1ULL << 62}, {}}}, "has 0 bytes"}};
  for (const auto& c : cases)
    EXPECT_THAT(error_of([&] { write_hdf5_file(dir / "a.h5", c.arrays, kNoAttributes); }),
                HasSubstr(c.expected));
  EXPECT_TRUE(test::names_in(dir).empty());
}

TEST(Writer, ErrorNamesWrongAttributesAndOptions) {
  const TempDirectory dir;
  const auto error = [&](const std::string& attributes, const WriteOptions& options = {}) {
    return error_of([&] { write_hdf5_file(dir / "a.h5", {}, test::json_of(attributes), options); });
  };
  EXPECT_THAT(error(R"({"a": [1, 2]})"), HasSubstr("attribute 'a'"));
  EXPECT_THAT(error(R"({"a": null})"), HasSubstr("attribute 'a'"));
  EXPECT_THAT(error(R"({"a": ")" + std::string(5000, 'x') + R"("})"), HasSubstr("attribute 'a'"));
  EXPECT_THAT(error("[1, 2]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(error("{}", {.block_bytes = 5000}), HasSubstr("block_bytes"));
  EXPECT_THAT(error("{}", {.block_bytes = 1ULL << 40}), HasSubstr("block_bytes"));
  EXPECT_THAT(error_of([&] { write_hdf5_file(dir / "a.txt", {}, kNoAttributes); }),
              HasSubstr("must end in '.h5'"));
  EXPECT_TRUE(test::names_in(dir).empty());
}

TEST(Writer, MissingScratchDirectoryIsReported) {
  const TempDirectory dir;
  const std::string error = error_of(
      [&] { write_hdf5_file(dir / "a.h5", {}, kNoAttributes, {.scratch_dir = dir / "missing"}); });
  EXPECT_THAT(error, HasSubstr("missing: No such file or directory; set scratch_dir"));
  EXPECT_TRUE(test::names_in(dir).empty());
}

TEST(Writer, FullScratchDirectoryIsReported) {
  const TempDirectory dir;
  const std::filesystem::path small = dir / "small";
  std::filesystem::create_directory(small);
  if (::mount("none", small.c_str(), "tmpfs", 0, "size=65536") != 0)
    GTEST_SKIP() << "mounting a small tmpfs needs root: " << std::strerror(errno);
  const std::string error = error_of([&] {
    write_hdf5_file(dir / "a.h5", test::small_model(1).views(), kNoAttributes,
                    {.scratch_dir = small});
  });
  EXPECT_TRUE(test::names_in(small).empty());
  ::umount(small.c_str());
  EXPECT_THAT(error, HasSubstr("too little free space"));
}

TEST(Skeleton, CleansUpAfterProcessesKilledLongAgo) {
  const TempDirectory scratch;
  const auto make = [&](const char* name, int age) {
    std::filesystem::create_directory(scratch / name);
    std::ofstream(scratch / name / "skeleton.h5") << "x";
    const auto when = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(age);
    std::filesystem::last_write_time(scratch / name, when);
  };
  make("ddp-ckpt-aaaaaa", 61);
  make("ddp-ckpt-bbbbbb", 10);  // may be in use
  make("other", 1000);
  const Skeleton skeleton({}, {}, kNoAttributes, scratch);
  EXPECT_EQ(test::names_in(scratch), (Names{"ddp-ckpt-bbbbbb", "other"}));
}

// Returns the arrays of a set, sorted by name. The views must outlive the result.
std::vector<const ArrayView*> sorted(const std::vector<ArrayView>& views) {
  std::vector<const ArrayView*> list;
  for (const ArrayView& view : views) list.push_back(&view);
  std::ranges::sort(list, {}, &ArrayView::name);
  return list;
}

TEST(Skeleton, LargeArraysAreAligned) {
  ArraySet set;
  for (std::uint64_t i = 0; i < 5; ++i)
    set.add(fmt::format("w{}", i), DType::uint8, {65536 + i * 777});
  const auto views = set.views();
  const auto list = sorted(views);
  const std::vector<std::optional<std::uint32_t>> unknown(list.size());
  const Skeleton skeleton(list, unknown, kNoAttributes, "");
  for (const std::uint64_t offset : skeleton.offsets()) EXPECT_EQ(offset % 4096, 0U);
}

TEST(Skeleton, LeavesNothingBehindAndFitsItsBound) {
  const TempDirectory scratch;
  std::vector<ArraySet> sets(4);
  for (int i = 0; i < 2000; ++i)
    sets[1].add(fmt::format("layer{}/p{}", i / 6, i), DType::int8, {3});
  for (int i = 0; i < 300; ++i) sets[2].add(fmt::format("g{}/{:n>1000}", i, ""), DType::int8, {3});
  std::string deep;
  for (int i = 0; i < 500; ++i) deep += "d/";
  sets[3].add(deep + "x", DType::int8, {3});
  for (const ArraySet& set : sets) {
    const auto views = set.views();
    const auto list = sorted(views);
    const std::vector<std::optional<std::uint32_t>> unknown(list.size());
    Skeleton skeleton(list, unknown, {{"a", 1}}, scratch);
    EXPECT_TRUE(test::names_in(scratch).empty());
    skeleton.finish(std::vector<std::uint32_t>(list.size()));
    EXPECT_LE(skeleton.size(), file_size_bound(list, {{"a", 1}}));
    if (list.empty()) continue;
    // All metadata comes before the first array.
    const auto first = *std::min_element(skeleton.offsets().begin(), skeleton.offsets().end());
    std::vector<std::byte> rest(skeleton.size() - first);
    skeleton.read(rest, first);
    EXPECT_EQ(std::count(rest.begin(), rest.end(), std::byte{0}), std::ssize(rest));
  }
}

}  // namespace
}  // namespace ddp::ckpt
