// SPDX-License-Identifier: Apache-2.0
// Arrays that are saved and loaded in parts, with any numbers of writers and readers and any
// division.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "tests/unit/hdf5_ckpt/elements.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

using testing::HasSubstr;

// Returns the bytes of a box of a whole array.
std::vector<std::byte> cut_out(const OwnedArray& whole, const Box& box) {
  const std::size_t item = itemsize(whole.dtype);
  std::vector<std::byte> bytes(byte_count(whole.dtype, box.extent).value());
  std::uint64_t element = 0;
  test::for_each_element(whole.shape, [&](const Shape& index) {
    if (const auto place = test::place_in(box, index))
      std::memcpy(bytes.data() + *place * item, whole.bytes.data() + element * item, item);
    ++element;
  });
  return bytes;
}

OwnedArray numbered(DType dtype, const Shape& shape) {
  OwnedArray array{dtype, shape, std::vector<std::byte>(byte_count(dtype, shape).value())};
  std::mt19937 random(3);
  for (std::byte& b : array.bytes) b = static_cast<std::byte>(1 + random() % 255);
  return array;
}

// Returns `count` boxes along dimension d: even, uneven, or some empty, by `kind`.
std::vector<Box> slices(const Shape& shape, std::size_t d, std::size_t count, int kind) {
  std::vector<Box> boxes;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t left = shape[d] - at;
    std::uint64_t extent = (left + count - i - 1) / (count - i);
    if (kind == 1) extent = i + 1 == count ? left : std::min<std::uint64_t>(left, 1 + 3 * i);
    if (kind == 2) extent = i + 1 == count ? left : (i % 2 == 0 ? 0 : left / 2);
    Box box{Shape(shape.size(), 0), shape};
    box.start[d] = at;
    box.extent[d] = extent;
    boxes.push_back(box);
    at += extent;
  }
  return boxes;
}

// All arrays of the test, divided along dimension d (or their last dimension), and a replicated
// array.
class Sharded : public testing::Test {
 protected:
  Sharded() {
    arrays_.emplace("a/line", numbered(DType::float32, {5003}));
    arrays_.emplace("a/matrix", numbered(DType::bfloat16, {37, 301}));
    arrays_.emplace("a/cube", numbered(DType::float64, {9, 11, 13}));
    arrays_.emplace("a/narrow", numbered(DType::int64, {2}));
    options_ = test::small_options();
    options_.write.block_bytes = 4096;
  }

  static Box part_for(const Shape& shape, std::size_t d, std::size_t count, int kind,
                      std::size_t rank) {
    return slices(shape, std::min(d, shape.size() - 1), count, kind)[rank];
  }

  // Saves as `count` ranks and opens the result.
  Checkpoint save(std::uint64_t step, std::size_t count, std::size_t d, int kind) {
    CheckpointDirectory directory(dir_.path(), options_);
    const SaveId id = directory.begin(step, test::test_owner());
    std::vector<FileRecord> records;
    for (std::size_t rank = 0; rank < count; ++rank) {
      std::vector<std::vector<std::byte>> memory;
      std::vector<ArrayView> views;
      memory.reserve(arrays_.size());
      for (const auto& [name, whole] : arrays_) {
        const Box box = part_for(whole.shape, d, count, kind, rank);
        memory.push_back(cut_out(whole, box));
        views.push_back(
            {name, whole.dtype, box.extent, memory.back(), PartOf{whole.shape, box.start}});
      }
      if (rank == count - 1)
        views.push_back({"replicated", DType::uint8, {bias_.size()}, bias_, {}});
      records.push_back(directory.write_shard(id, "rank-" + std::to_string(rank) + ".h5", views));
    }
    return Checkpoint::open(directory.commit(id, records, test::test_info()).path);
  }

  // Checks that rank `rank` of `count` reads its parts.
  void expect_reads(const Checkpoint& checkpoint, std::size_t count, std::size_t d, int kind,
                    std::size_t rank) {
    std::vector<std::vector<std::byte>> expected;
    std::vector<std::vector<std::byte>> memory;
    std::vector<MutableArrayView> targets;
    memory.reserve(arrays_.size() + 1);
    for (const auto& [name, whole] : arrays_) {
      const Box box = part_for(whole.shape, d, count, kind, rank);
      expected.push_back(cut_out(whole, box));
      memory.emplace_back(expected.back().size());
      targets.push_back(
          {name, whole.dtype, box.extent, memory.back(), PartOf{whole.shape, box.start}});
    }
    expected.push_back(bias_);
    memory.emplace_back(bias_.size());
    targets.push_back({"replicated", DType::uint8, {bias_.size()}, memory.back(), {}});
    checkpoint.read_into(targets);
    EXPECT_EQ(memory, expected);
  }

  std::map<std::string, OwnedArray> arrays_;
  std::vector<std::byte> bias_ = std::vector<std::byte>(5000, std::byte{7});
  SaveOptions options_;
  test::TempDirectory dir_{test::On::memory};
};

TEST_F(Sharded, NumbersOfReadersAndWritersMayDiffer) {
  std::uint64_t step = 0;
  for (std::size_t writers = 1; writers <= 5; ++writers)
    for (std::size_t cut = 0; cut < 3; ++cut)
      for (int kind = 0; kind < 3; ++kind) {
        const Checkpoint checkpoint = save(++step, writers, cut, kind);
        checkpoint.verify();
        for (const auto& [name, whole] : arrays_)
          EXPECT_EQ(checkpoint.read(name).bytes, whole.bytes) << name;
        // Each division for reading is combined with each division for writing, for some number of
        // readers.
        for (std::size_t readers = 1; readers <= 5; ++readers) {
          const std::size_t other = (cut + readers) % 3;
          SCOPED_TRACE(testing::Message() << writers << " writers cut " << cut << " kind " << kind
                                          << ", " << readers << " readers");
          for (std::size_t rank = 0; rank < readers; ++rank)
            expect_reads(checkpoint, readers, other, (kind + static_cast<int>(writers)) % 3, rank);
        }
        if (HasFailure()) return;
      }
}

TEST_F(Sharded, ReaderReadsOnlyTheBlocksThatItNeeds) {
  const Checkpoint checkpoint = save(1, 2, 0, 0);  // rows 0 to 2501 and 2502 to 5002
  std::vector<std::byte> memory(4);
  // The first byte of the second block of the second part requires reading all of that block.
  const Shape at = {2502 + 1024};
  const MutableArrayView one{"a/line", DType::float32, {1}, memory, PartOf{{5003}, at}};
  std::uint64_t read = 0;
  const ReadOptions options{1, [&](std::uint64_t done, std::uint64_t) { read = done; }};
  checkpoint.read_into({&one, 1}, Match::subset, options);
  EXPECT_EQ(read, 4096U);
  const auto& whole = arrays_.at("a/line").bytes;
  EXPECT_EQ(std::memcmp(memory.data(), whole.data() + 4 * at[0], 4), 0);
  // Only damage inside this block is detected.
  const ArrayInfo& part = checkpoint.find("a/line")->parts[1];
  const auto file = checkpoint.path() / part.file;
  const auto original = test::file_bytes(file);
  for (const auto& [offset, met] :
       {std::pair<std::uint64_t, bool>{4095, false}, {4096, true}, {8191, true}, {8192, false}}) {
    auto bytes = original;
    bytes[part.offset + offset] ^= std::byte{1};
    test::put_file_bytes(file, bytes);
    if (!met)
      checkpoint.read_into({&one, 1}, Match::subset);
    else
      EXPECT_THAT(error_of([&] {
                    checkpoint.read_into({&one, 1}, Match::subset);
                  }),
                  HasSubstr("array 'a/line': bytes 4096 to 8191 (in 'rank-1.h5'"));
  }
}

TEST_F(Sharded, StreamIsTheWholeArrayInPieces) {
  const Checkpoint checkpoint = save(1, 3, 1, 1);
  for (const auto& [name, whole] : arrays_) {
    std::vector<std::byte> all;
    std::size_t largest = 0;
    checkpoint.stream(name, 1000, {}, [&](std::span<const std::byte> piece) {
      all.insert(all.end(), piece.begin(), piece.end());
      largest = std::max(largest, piece.size());
    });
    EXPECT_EQ(all, whole.bytes) << name;
    EXPECT_LE(largest, 1000U);
  }
  EXPECT_THAT(error_of([&] { checkpoint.stream("x", 1000, {}, [](auto) {}); }),
              HasSubstr("has no array 'x'"));
}

TEST_F(Sharded, OneReadMayRequestSeveralParts) {
  const Checkpoint checkpoint = save(1, 3, 0, 0);
  std::vector<std::byte> first(8);
  std::vector<std::byte> last(8);
  const MutableArrayView targets[] = {
      {"a/line", DType::float32, {2}, first, PartOf{{5003}, {0}}},
      {"a/line", DType::float32, {2}, last, PartOf{{5003}, {5001}}}};
  checkpoint.read_into(targets, Match::subset);
  const auto& whole = arrays_.at("a/line").bytes;
  EXPECT_EQ(std::memcmp(first.data(), whole.data(), 8), 0);
  EXPECT_EQ(std::memcmp(last.data(), whole.data() + whole.size() - 8, 8), 0);
}

TEST_F(Sharded, MismatchIsReportedBeforeAnyByteIsRead) {
  const Checkpoint checkpoint = save(1, 2, 0, 0);
  std::vector<std::byte> memory(8);
  const auto error = [&](const Shape& shape, const PartOf& part) {
    const MutableArrayView target{"a/line", DType::float32, shape, memory, part};
    return error_of([&] { checkpoint.read_into({&target, 1}, Match::subset); });
  };
  EXPECT_THAT(error({2}, {{5004}, {0}}), HasSubstr("is float32 [5003] there and float32 [5004]"));
  EXPECT_THAT(error({2}, {{5003}, {5002}}), HasSubstr("requested in a part that has [2] from"));
  EXPECT_THAT(error({3}, {{5003}, {0}}), HasSubstr("takes 12 bytes, not 8"));
  const MutableArrayView missing{"replicated", DType::uint8, {5000}, bias_, {}};
  EXPECT_THAT(error_of([&] {
                checkpoint.read_into({&missing, 1});
              }),
              HasSubstr("not expected here: 'a/cube', 'a/line'"));
}

TEST_F(Sharded, PartsThatDoNotFormAnArrayAreNotCommitted) {
  CheckpointDirectory directory(dir_.path(), options_);
  std::vector<std::byte> bytes(16);
  const auto commit = [&](const Shape& start_of_second, const char* name_of_second) {
    const SaveId id = directory.begin(9, test::test_owner());
    const ArrayView parts[] = {
        {"w", DType::float32, {4}, bytes, PartOf{{8}, {0}}},
        {name_of_second, DType::float32, {4}, bytes, PartOf{{8}, start_of_second}}};
    const FileRecord records[] = {directory.write_shard(id, "rank-0.h5", {&parts[0], 1}),
                                  directory.write_shard(id, "rank-1.h5", {&parts[1], 1})};
    directory.commit(id, records, test::test_info());
  };
  EXPECT_THAT(error_of([&] { commit({3}, "w"); }), HasSubstr("array 'w' has parts that"));
  EXPECT_THAT(error_of([&] { commit({4}, "v"); }), HasSubstr("array 'v' has a hole"));
  EXPECT_THAT(error_of([&] { commit({5}, "w"); }),
              HasSubstr("the part of array 'w' has [4] from [5], outside of [8]"));
  directory.abandon({9, test::test_owner()});
  EXPECT_TRUE(directory.candidates().empty());
  EXPECT_THAT(test::names_in(dir_.path()), testing::IsEmpty());
}

TEST_F(Sharded, OnlyPartsRequireANewerReader) {
  static_cast<void>(save(1, 2, 0, 0));
  const auto text_of = [&](const char* dir) {
    const auto bytes = test::file_bytes(dir_ / dir / "manifest.json");
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_THAT(text_of("step-00000001"), HasSubstr("\"min_reader\": 2,"));
  const auto model = test::small_model(1);
  CheckpointDirectory(dir_.path(), options_)
      .save(2, test::test_owner(), model.views(), test::test_info());
  EXPECT_THAT(text_of("step-00000002"), HasSubstr("\"min_reader\": 1,"));
}

}  // namespace
}  // namespace ddp::ckpt
