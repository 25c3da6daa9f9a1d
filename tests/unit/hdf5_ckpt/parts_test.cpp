// Arrays in parts: any number of writers, any number of readers, any way of cutting; and lists of
// parts that are not together one array.

#include "hdf5_ckpt/detail/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "fault_matrix.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/error.h"
#include "support.h"

namespace ddp::ckpt {
namespace {

using testing::HasSubstr;

// Calls visit(index) for every element of a shape, in memory order.
template <typename Visit>
void for_each_element(const Shape& shape, const Visit& visit) {
  Shape index(shape.size(), 0);
  std::uint64_t elements = 1;
  for (const std::uint64_t n : shape) elements *= n;
  for (std::uint64_t i = 0; i < elements; ++i) {
    visit(index);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

// Where element `index` of the whole array lies in a box, in elements; nothing if it does not.
std::optional<std::uint64_t> place_in(const Box& box, const Shape& index) {
  std::uint64_t place = 0;
  for (std::size_t d = 0; d < index.size(); ++d) {
    if (index[d] < box.start[d] || index[d] >= box.start[d] + box.extent[d]) return std::nullopt;
    place = place * box.extent[d] + (index[d] - box.start[d]);
  }
  return place;
}

// ---- which bytes two boxes share ---------------------------------------------------------------

Box random_box(const Shape& shape, std::mt19937& random) {
  Box box;
  for (const std::uint64_t n : shape) {
    box.start.push_back(random() % (n + 1));
    const std::uint64_t room = n - box.start.back();
    box.extent.push_back(random() % 3 == 0 ? room : random() % (room + 1));
  }
  return box;
}

TEST(Overlap, IsWhatComparingElementByElementFinds) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    Shape shape;
    for (auto d = random() % 5; d > 0; --d) shape.push_back(1 + random() % 4);
    const Box from = random_box(shape, random);
    const Box to = random_box(shape, random);
    std::map<std::uint64_t, std::uint64_t> expected;  // byte of `from` to byte of `to`
    for_each_element(shape, [&](const Shape& index) {
      const auto a = place_in(from, index);
      const auto b = place_in(to, index);
      if (a && b)
        for (std::uint64_t byte = 0; byte < 2; ++byte) expected[2 * *a + byte] = 2 * *b + byte;
    });
    const Overlap overlap(from, to, 2);
    std::map<std::uint64_t, std::uint64_t> found;
    for (std::uint64_t r = 0; r < overlap.runs(); ++r) {
      const Overlap::Run run = overlap.run(r);
      for (std::uint64_t byte = 0; byte < run.length; ++byte)
        ASSERT_TRUE(found.emplace(run.from + byte, run.to + byte).second);
    }
    ASSERT_EQ(found, expected) << i;
    const std::uint64_t begin = random() % 20;
    const std::uint64_t end = begin + 1 + random() % 20;
    ASSERT_EQ(overlap.touches(begin, end), expected.lower_bound(begin) != expected.lower_bound(end))
        << i << ": " << begin << " to " << end;
  }
}

TEST(Overlap, OfRowsIsOneRun) {
  const Overlap rows({{10, 0, 0}, {20, 7, 3}}, {{15, 0, 0}, {30, 7, 3}}, 4);
  ASSERT_EQ(rows.runs(), 1U);
  EXPECT_EQ(rows.run(0).from, 5U * 7 * 3 * 4);
  EXPECT_EQ(rows.run(0).to, 0U);
  EXPECT_EQ(rows.run(0).length, 15U * 7 * 3 * 4);
}

TEST(Pieces, AreTheArrayInItsOrder) {
  std::mt19937 random(5);
  for (int i = 0; i < 1000; ++i) {
    Shape shape;
    for (auto d = random() % 5; d > 0; --d)
      shape.push_back(random() % 12 == 0 ? 0 : 1 + random() % 5);
    const std::uint64_t piece_bytes = 1 + random() % 60;
    const Box all{Shape(shape.size(), 0), shape};
    std::uint64_t next = 0;
    std::size_t pieces = 0;
    for_each_piece(DType::kInt16, shape, piece_bytes, [&](const Box& box) {
      const std::uint64_t bytes = byte_count(DType::kInt16, box.extent).value();
      const Overlap overlap(box, all, 2);
      ASSERT_EQ(overlap.runs(), 1U);
      ASSERT_EQ(overlap.run(0).to, next);
      ASSERT_EQ(overlap.run(0).length, bytes);
      ASSERT_LE(bytes, std::max<std::uint64_t>(piece_bytes, 2));
      next += bytes;
      ++pieces;
    });
    ASSERT_EQ(next, byte_count(DType::kInt16, shape)) << i;
    ASSERT_TRUE(pieces <= 1 || next > piece_bytes);
  }
}

// ---- which lists of parts are an array ---------------------------------------------------------

ArrayInfo part_of(const Shape& global, const Shape& start, const Shape& shape, int file) {
  ArrayInfo info;
  info.name = "w";
  info.shape = shape;
  info.file = "rank-" + std::to_string(file) + ".h5";
  info.part = PartOf{global, start};
  return info;
}

// All rules for a list of parts, as check_manifest() applies them.
std::string problem_of(const std::vector<ArrayInfo>& parts) {
  for (const ArrayInfo& part : parts)
    if (std::string problem = part_problem(part.dtype, part.shape, *part.part); !problem.empty())
      return problem;
  std::uint64_t comparisons = 0;
  return cover_problem(parts, comparisons);
}

TEST(Parts, EveryThingThatCanBeWrongIsNamed) {
  struct Case {
    std::vector<ArrayInfo> parts;
    const char* expected;
  };
  const Shape g = {4, 6};
  std::vector<ArrayInfo> other_type = {part_of(g, {0, 0}, {2, 6}, 0),
                                       part_of(g, {2, 0}, {2, 6}, 1)};
  other_type[1].dtype = DType::kInt32;
  const std::vector<Case> cases = {
      {{part_of(g, {0, 0}, {4, 6}, 0)}, ""},
      {{part_of(g, {0, 0}, {4, 2}, 0), part_of(g, {0, 2}, {4, 4}, 1)}, ""},
      {{part_of(g, {0, 0}, {2, 3}, 0), part_of(g, {0, 3}, {3, 3}, 1), part_of(g, {2, 0}, {2, 3}, 2),
        part_of(g, {3, 3}, {1, 3}, 3)},
       ""},
      {{part_of(g, {0, 0}, {4, 6}, 0), part_of(g, {4, 0}, {0, 6}, 1),
        part_of(g, {4, 0}, {0, 6}, 2)},
       ""},
      {{part_of({}, {}, {}, 0)}, ""},
      {{part_of({0, 5}, {0, 0}, {0, 3}, 0), part_of({0, 5}, {0, 3}, {0, 2}, 1)}, ""},
      {{part_of(g, {0, 0}, {5, 6}, 0)}, "has [5, 6] from [0, 0], outside of [4, 6]"},
      {{part_of(g, {5, 0}, {0, 6}, 0)}, "outside of [4, 6]"},
      {{part_of(g, {~0ULL, 0}, {2, 6}, 0)}, "outside of [4, 6]"},
      {{part_of(g, {1, 0}, {~0ULL, 6}, 0)}, "outside of [4, 6]"},
      {{part_of(g, {0}, {4, 6}, 0)}, "has 2 dimensions, starts at [0] and belongs to [4, 6]"},
      {{part_of({4}, {0, 0}, {4, 6}, 0)}, "belongs to [4]"},
      {{part_of({1ULL << 62, 1ULL << 62}, {0, 0}, {1, 1}, 0)}, "a size that does not exist"},
      {{part_of(g, {0, 0}, {3, 6}, 0)}, "has a hole: its parts have 18 of its 24 elements"},
      {{part_of(g, {0, 0}, {0, 6}, 0)}, "has a hole: its parts have 0 of its 24"},
      {{part_of(g, {0, 0}, {3, 6}, 0), part_of(g, {2, 0}, {2, 6}, 1)}, "has parts that overlap"},
      // As many elements as the array has, and yet not the array.
      {{part_of(g, {0, 0}, {2, 6}, 0), part_of(g, {1, 0}, {2, 6}, 1)}, "has parts that overlap"},
      {{part_of(g, {0, 0}, {4, 6}, 0), part_of(g, {0, 0}, {4, 6}, 1)}, "has parts that overlap"},
      {{part_of({}, {}, {}, 0), part_of({}, {}, {}, 1)}, "has several parts, and is a scalar"},
      {{part_of(g, {0, 0}, {2, 6}, 0), part_of(g, {2, 0}, {2, 6}, 0)}, "two parts in 'rank-0.h5'"},
      {{part_of(g, {0, 0}, {2, 6}, 0), part_of({5, 6}, {2, 0}, {3, 6}, 1)}, "float32 [5, 6] in"},
      {other_type, "is float32 [4, 6] in 'rank-0.h5' and int32 [4, 6] in 'rank-1.h5'"},
  };
  for (const Case& c : cases) {
    const std::string problem = problem_of(c.parts);
    if (*c.expected == '\0')
      EXPECT_EQ(problem, "");
    else
      EXPECT_THAT(problem, HasSubstr(c.expected));
  }
}

TEST(Parts, AGridOfManyRanksIsCompared) {
  std::vector<ArrayInfo> parts;
  for (std::uint64_t i = 0; i < 64; ++i)
    for (std::uint64_t j = 0; j < 64; ++j)
      parts.push_back(
          part_of({640, 640}, {10 * i, 10 * j}, {10, 10}, static_cast<int>(parts.size())));
  EXPECT_EQ(problem_of(parts), "");
  parts[2000].part->start[1] -= 1;
  EXPECT_THAT(problem_of(parts), HasSubstr("overlap"));
}

// However they were cut: slices that only touch are never compared with each other.
TEST(Parts, SlicesOfManyRanksNeedNoComparison) {
  constexpr std::uint64_t kSlices = 1000;
  for (const std::size_t cut : {0, 1, 2}) {
    const Shape global = {2 * kSlices, 2 * kSlices, 2 * kSlices};
    std::vector<ArrayInfo> parts;
    for (std::uint64_t i = 0; i < kSlices; ++i) {
      Shape start = {0, 0, 0};
      Shape shape = global;
      start[cut] = 2 * i;
      shape[cut] = 2;
      parts.push_back(part_of(global, start, shape, static_cast<int>(i)));
    }
    std::uint64_t comparisons = 0;
    EXPECT_EQ(cover_problem(parts, comparisons), "");
    EXPECT_EQ(comparisons, 0U) << "cut along dimension " << cut;
  }
}

TEST(Parts, AListThatTakesTooLongToCompareIsRefused) {
  const std::vector<ArrayInfo> parts = {part_of({4, 4}, {0, 0}, {2, 4}, 0),
                                        part_of({4, 4}, {2, 0}, {2, 4}, 1),
                                        part_of({4, 4}, {3, 0}, {1, 4}, 2)};
  std::uint64_t comparisons = kMaxComparisons;
  EXPECT_THAT(cover_problem(parts, comparisons), HasSubstr("more parts than can be compared"));
}

// Cuts a box in two along a random dimension until there are `count`.
std::vector<Box> random_cut(const Shape& shape, std::size_t count, std::mt19937& random) {
  std::vector<Box> boxes = {{Shape(shape.size(), 0), shape}};
  while (boxes.size() < count) {
    Box& box = boxes[random() % boxes.size()];
    const std::size_t d = random() % shape.size();
    const std::uint64_t at = random() % (box.extent[d] + 1);
    Box rest = box;
    rest.start[d] += at;
    rest.extent[d] -= at;
    box.extent[d] = at;
    boxes.push_back(rest);
  }
  return boxes;
}

TEST(Parts, ListsChangedAtRandomAreTakenOnlyIfEachElementIsThereOnce) {
  std::mt19937 random(11);
  const std::size_t kCases = test::long_tests() ? 1000000 : 20000;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < kCases; ++i) {
    Shape shape;
    for (auto d = 1 + random() % 3; d > 0; --d) shape.push_back(1 + random() % 4);
    std::vector<ArrayInfo> parts;
    for (const Box& box : random_cut(shape, 1 + random() % 5, random))
      parts.push_back(part_of(shape, box.start, box.extent, static_cast<int>(parts.size())));
    for (auto changes = random() % 3; changes > 0; --changes) {
      ArrayInfo& part = parts[random() % parts.size()];
      Shape& numbers = random() % 2 == 0 ? part.part->start : part.shape;
      numbers[random() % numbers.size()] += random() % 3 - 1;  // wraps below zero, too
    }
    bool valid = true;
    for (const ArrayInfo& part : parts)
      valid = valid && part_problem(part.dtype, part.shape, *part.part).empty();
    if (valid)
      for_each_element(shape, [&](const Shape& index) {
        int holders = 0;
        for (const ArrayInfo& part : parts)
          holders += place_in({part.part->start, part.shape}, index).has_value() ? 1 : 0;
        valid = valid && holders == 1;
      });
    ASSERT_EQ(problem_of(parts).empty(), valid) << i;
    taken += valid ? 1 : 0;
  }
  EXPECT_GT(taken, kCases / 10);
  EXPECT_LT(taken, kCases * 9 / 10);
  test::expect_in_fault_matrix("list of parts changed at random", kCases);
}

// ---- saving and loading ------------------------------------------------------------------------

// The bytes of a box of an array that is held whole.
std::vector<std::byte> cut_out(const OwnedArray& whole, const Box& box) {
  const std::size_t item = itemsize(whole.dtype);
  std::vector<std::byte> bytes(byte_count(whole.dtype, box.extent).value());
  std::uint64_t element = 0;
  for_each_element(whole.shape, [&](const Shape& index) {
    if (const auto place = place_in(box, index))
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

// `count` boxes along dimension d: even, uneven, or with empty ones, by `kind`.
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

// Every array of the test cut along dimension d (or its last), and one that is replicated.
class Sharded : public testing::Test {
 protected:
  Sharded() {
    arrays_.emplace("a/line", numbered(DType::kFloat32, {5003}));
    arrays_.emplace("a/matrix", numbered(DType::kBFloat16, {37, 301}));
    arrays_.emplace("a/cube", numbered(DType::kFloat64, {9, 11, 13}));
    arrays_.emplace("a/narrow", numbered(DType::kInt64, {2}));
    options_ = test::small_options();
    options_.write.block_bytes = 4096;
  }

  static Box part_for(const Shape& shape, std::size_t d, std::size_t count, int kind,
                      std::size_t rank) {
    return slices(shape, std::min(d, shape.size() - 1), count, kind)[rank];
  }

  // Saves as `count` ranks do, and opens what was saved.
  Checkpoint save(std::uint64_t step, std::size_t count, std::size_t d, int kind) {
    CheckpointDirectory directory(folder_.path(), options_);
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
        views.push_back({"replicated", DType::kUInt8, {bias_.size()}, bias_, {}});
      records.push_back(directory.write_shard(id, "rank-" + std::to_string(rank) + ".h5", views));
    }
    return Checkpoint::open(directory.commit(id, records, test::test_info()).path);
  }

  // Whether rank `rank` of `count` gets its parts.
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
    targets.push_back({"replicated", DType::kUInt8, {bias_.size()}, memory.back(), {}});
    checkpoint.read_into(targets);
    EXPECT_EQ(memory, expected);
  }

  std::map<std::string, OwnedArray> arrays_;
  std::vector<std::byte> bias_ = std::vector<std::byte>(5000, std::byte{7});
  SaveOptions options_;
  test::TempFolder folder_{test::On::kMemory};
};

TEST_F(Sharded, AnyNumberOfRanksReadsWhatAnyNumberWrote) {
  std::uint64_t step = 0;
  for (std::size_t writers = 1; writers <= 5; ++writers)
    for (std::size_t cut = 0; cut < 3; ++cut)
      for (int kind = 0; kind < 3; ++kind) {
        const Checkpoint checkpoint = save(++step, writers, cut, kind);
        checkpoint.verify();
        for (const auto& [name, whole] : arrays_)
          EXPECT_EQ(checkpoint.read(name).bytes, whole.bytes) << name;
        // Each way of reading meets each way of writing, for some number of readers.
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

TEST_F(Sharded, AReaderReadsOnlyTheBlocksThatItNeeds) {
  const Checkpoint checkpoint = save(1, 2, 0, 0);  // rows 0 to 2501 and 2502 to 5002
  std::vector<std::byte> memory(4);
  // The first byte of the second block of the second part, and so all of that block.
  const Shape at = {2502 + 1024};
  const MutableArrayView one{"a/line", DType::kFloat32, {1}, memory, PartOf{{5003}, at}};
  std::uint64_t read = 0;
  const ReadOptions options{1, [&](std::uint64_t done, std::uint64_t) { read = done; }};
  checkpoint.read_into({&one, 1}, Match::kSubset, options);
  EXPECT_EQ(read, 4096U);
  const auto& whole = arrays_.at("a/line").bytes;
  EXPECT_EQ(std::memcmp(memory.data(), whole.data() + 4 * at[0], 4), 0);
  // Damage beside it is not met, damage in its block is.
  const ArrayInfo& part = checkpoint.find("a/line")->parts[1];
  const auto file = checkpoint.path() / part.file;
  const auto original = test::file_bytes(file);
  for (const auto& [offset, met] :
       {std::pair<std::uint64_t, bool>{4095, false}, {4096, true}, {8191, true}, {8192, false}}) {
    auto bytes = original;
    bytes[part.offset + offset] ^= std::byte{1};
    test::put_file_bytes(file, bytes);
    if (!met)
      checkpoint.read_into({&one, 1}, Match::kSubset);
    else
      EXPECT_THAT(test::error_of([&] {
                    checkpoint.read_into({&one, 1}, Match::kSubset);
                  }),
                  HasSubstr("array 'a/line': bytes 4096 to 8191 (in 'rank-1.h5'"));
  }
}

TEST_F(Sharded, AStreamIsTheWholeArrayInPieces) {
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
  EXPECT_THAT(test::error_of([&] { checkpoint.stream("x", 1000, {}, [](auto) {}); }),
              HasSubstr("has no array 'x'"));
}

TEST_F(Sharded, OneReadMayAskForSeveralParts) {
  const Checkpoint checkpoint = save(1, 3, 0, 0);
  std::vector<std::byte> first(8);
  std::vector<std::byte> last(8);
  const MutableArrayView targets[] = {
      {"a/line", DType::kFloat32, {2}, first, PartOf{{5003}, {0}}},
      {"a/line", DType::kFloat32, {2}, last, PartOf{{5003}, {5001}}}};
  checkpoint.read_into(targets, Match::kSubset);
  const auto& whole = arrays_.at("a/line").bytes;
  EXPECT_EQ(std::memcmp(first.data(), whole.data(), 8), 0);
  EXPECT_EQ(std::memcmp(last.data(), whole.data() + whole.size() - 8, 8), 0);
}

TEST_F(Sharded, WhatDoesNotFitIsNamedBeforeAnyByteIsRead) {
  const Checkpoint checkpoint = save(1, 2, 0, 0);
  std::vector<std::byte> memory(8);
  const auto error = [&](const Shape& shape, const PartOf& part) {
    const MutableArrayView target{"a/line", DType::kFloat32, shape, memory, part};
    return test::error_of([&] { checkpoint.read_into({&target, 1}, Match::kSubset); });
  };
  EXPECT_THAT(error({2}, {{5004}, {0}}), HasSubstr("is float32 [5003] there and float32 [5004]"));
  EXPECT_THAT(error({2}, {{5003}, {5002}}), HasSubstr("asked for in a part that has [2] from"));
  EXPECT_THAT(error({3}, {{5003}, {0}}), HasSubstr("takes 12 bytes, not 8"));
  const MutableArrayView missing{"replicated", DType::kUInt8, {5000}, bias_, {}};
  EXPECT_THAT(test::error_of([&] {
                checkpoint.read_into({&missing, 1});
              }),
              HasSubstr("not expected here: 'a/cube', 'a/line'"));
}

TEST_F(Sharded, PartsThatAreNoArrayAreNotCommitted) {
  CheckpointDirectory directory(folder_.path(), options_);
  std::vector<std::byte> bytes(16);
  const auto commit = [&](const Shape& start_of_second, const char* name_of_second) {
    const SaveId id = directory.begin(9, test::test_owner());
    const ArrayView parts[] = {
        {"w", DType::kFloat32, {4}, bytes, PartOf{{8}, {0}}},
        {name_of_second, DType::kFloat32, {4}, bytes, PartOf{{8}, start_of_second}}};
    const FileRecord records[] = {directory.write_shard(id, "rank-0.h5", {&parts[0], 1}),
                                  directory.write_shard(id, "rank-1.h5", {&parts[1], 1})};
    directory.commit(id, records, test::test_info());
  };
  EXPECT_THAT(test::error_of([&] { commit({3}, "w"); }), HasSubstr("array 'w' has parts that"));
  EXPECT_THAT(test::error_of([&] { commit({4}, "v"); }), HasSubstr("array 'v' has a hole"));
  EXPECT_THAT(test::error_of([&] { commit({5}, "w"); }),
              HasSubstr("the part of array 'w' has [4] from [5], outside of [8]"));
  directory.abandon({9, test::test_owner()});
  EXPECT_TRUE(directory.candidates().empty());
  EXPECT_THAT(test::names_in(folder_.path()), testing::IsEmpty());
}

TEST_F(Sharded, OnlyPartsAskForANewerReader) {
  static_cast<void>(save(1, 2, 0, 0));
  const auto text_of = [&](const char* folder) {
    const auto bytes = test::file_bytes(folder_ / folder / "manifest.json");
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_THAT(text_of("step-00000001"), HasSubstr("\"min_reader\": 2,"));
  const auto model = test::small_model(1);
  CheckpointDirectory(folder_.path(), options_)
      .save(2, test::test_owner(), model.views(), test::test_info());
  EXPECT_THAT(text_of("step-00000002"), HasSubstr("\"min_reader\": 1,"));
}

}  // namespace
}  // namespace ddp::ckpt
