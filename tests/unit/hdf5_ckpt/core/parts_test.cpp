// SPDX-License-Identifier: Apache-2.0
// Bytes that two boxes of an array share, and lists of parts that do not form one array.
// sharded_test.cpp covers saving and loading in parts.

#include "hdf5_ckpt/core/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/hdf5_ckpt/elements.h"
#include "tests/unit/hdf5_ckpt/fault_matrix.h"

namespace ddp::ckpt {
namespace {

using testing::HasSubstr;

// ---- bytes that two boxes share ----------------------------------------------------------------

Box random_box(const Shape& shape, std::mt19937& random) {
  Box box;
  for (const std::uint64_t n : shape) {
    box.start.push_back(random() % (n + 1));
    const std::uint64_t room = n - box.start.back();
    box.extent.push_back(random() % 3 == 0 ? room : random() % (room + 1));
  }
  return box;
}

TEST(Overlap, AgreesWithAnElementwiseComparison) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    Shape shape;
    for (auto d = random() % 5; d > 0; --d) shape.push_back(1 + random() % 4);
    const Box from = random_box(shape, random);
    const Box to = random_box(shape, random);
    std::map<std::uint64_t, std::uint64_t> expected;  // byte of `from` to byte of `to`
    test::for_each_element(shape, [&](const Shape& index) {
      const auto a = test::place_in(from, index);
      const auto b = test::place_in(to, index);
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

TEST(Overlap, RowsAreOneRun) {
  const Overlap rows({{10, 0, 0}, {20, 7, 3}}, {{15, 0, 0}, {30, 7, 3}}, 4);
  ASSERT_EQ(rows.runs(), 1U);
  EXPECT_EQ(rows.run(0).from, 5U * 7 * 3 * 4);
  EXPECT_EQ(rows.run(0).to, 0U);
  EXPECT_EQ(rows.run(0).length, 15U * 7 * 3 * 4);
}

TEST(Pieces, CoverTheArrayInOrder) {
  std::mt19937 random(5);
  for (int i = 0; i < 1000; ++i) {
    Shape shape;
    for (auto d = random() % 5; d > 0; --d)
      shape.push_back(random() % 12 == 0 ? 0 : 1 + random() % 5);
    const std::uint64_t piece_bytes = 1 + random() % 60;
    const Box all{Shape(shape.size(), 0), shape};
    std::uint64_t next = 0;
    std::size_t pieces = 0;
    for_each_piece(DType::int16, shape, piece_bytes, [&](const Box& box) {
      const std::uint64_t bytes = byte_count(DType::int16, box.extent).value();
      const Overlap overlap(box, all, 2);
      ASSERT_EQ(overlap.runs(), 1U);
      ASSERT_EQ(overlap.run(0).to, next);
      ASSERT_EQ(overlap.run(0).length, bytes);
      ASSERT_LE(bytes, std::max<std::uint64_t>(piece_bytes, 2));
      next += bytes;
      ++pieces;
    });
    ASSERT_EQ(next, byte_count(DType::int16, shape)) << i;
    ASSERT_TRUE(pieces <= 1 || next > piece_bytes);
  }
}

// ---- lists of parts that form an array ---------------------------------------------------------

ArrayInfo part_of(const Shape& global, const Shape& start, const Shape& shape, int file) {
  ArrayInfo info;
  info.name = "w";
  info.shape = shape;
  info.file = "rank-" + std::to_string(file) + ".h5";
  info.part = PartOf{global, start};
  return info;
}

// Checks a list of parts by all rules, as check_manifest() does.
std::string problem_of(const std::vector<ArrayInfo>& parts) {
  for (const ArrayInfo& part : parts)
    if (std::string problem = part_problem(part.dtype, part.shape, *part.part); !problem.empty())
      return problem;
  std::uint64_t comparisons = 0;
  return cover_problem(parts, comparisons);
}

TEST(Parts, ErrorNamesEveryDefect) {
  struct Case {
    std::vector<ArrayInfo> parts;
    const char* expected;
  };
  const Shape g = {4, 6};
  std::vector<ArrayInfo> other_type = {part_of(g, {0, 0}, {2, 6}, 0),
                                       part_of(g, {2, 0}, {2, 6}, 1)};
  other_type[1].dtype = DType::int32;
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
      {{part_of({1ULL << 62, 1ULL << 62}, {0, 0}, {1, 1}, 0)}, "an impossible size"},
      {{part_of(g, {0, 0}, {3, 6}, 0)}, "has a hole: its parts have 18 of its 24 elements"},
      {{part_of(g, {0, 0}, {0, 6}, 0)}, "has a hole: its parts have 0 of its 24"},
      {{part_of(g, {0, 0}, {3, 6}, 0), part_of(g, {2, 0}, {2, 6}, 1)}, "has parts that overlap"},
      // The number of elements is right, but the parts do not cover the array.
      {{part_of(g, {0, 0}, {2, 6}, 0), part_of(g, {1, 0}, {2, 6}, 1)}, "has parts that overlap"},
      {{part_of(g, {0, 0}, {4, 6}, 0), part_of(g, {0, 0}, {4, 6}, 1)}, "has parts that overlap"},
      {{part_of({}, {}, {}, 0), part_of({}, {}, {}, 1)}, "is a scalar in several parts"},
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

TEST(Parts, GridOfManyRanksIsCompared) {
  std::vector<ArrayInfo> parts;
  for (std::uint64_t i = 0; i < 64; ++i)
    for (std::uint64_t j = 0; j < 64; ++j)
      parts.push_back(
          part_of({640, 640}, {10 * i, 10 * j}, {10, 10}, static_cast<int>(parts.size())));
  EXPECT_EQ(problem_of(parts), "");
  parts[2000].part->start[1] -= 1;
  EXPECT_THAT(problem_of(parts), HasSubstr("overlap"));
}

// Slices that only touch are never compared with each other, for any direction of the cuts.
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

TEST(Parts, ListThatTakesTooLongToCompareIsRejected) {
  const std::vector<ArrayInfo> parts = {part_of({4, 4}, {0, 0}, {2, 4}, 0),
                                        part_of({4, 4}, {2, 0}, {2, 4}, 1),
                                        part_of({4, 4}, {3, 0}, {1, 4}, 2)};
  std::uint64_t comparisons = kMaxComparisons;
  EXPECT_THAT(cover_problem(parts, comparisons), HasSubstr("more parts than can be compared"));
}

// Divides a box along random dimensions into `count` boxes.
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

TEST(Parts, RandomListsAreAcceptedOnlyIfEachElementOccursOnce) {
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
      numbers[random() % numbers.size()] += random() % 3 - 1;  // may also wrap below zero
    }
    bool valid = true;
    for (const ArrayInfo& part : parts)
      valid = valid && part_problem(part.dtype, part.shape, *part.part).empty();
    if (valid)
      test::for_each_element(shape, [&](const Shape& index) {
        int holders = 0;
        for (const ArrayInfo& part : parts)
          holders += test::place_in({part.part->start, part.shape}, index).has_value() ? 1 : 0;
        valid = valid && holders == 1;
      });
    ASSERT_EQ(problem_of(parts).empty(), valid) << i;
    taken += valid ? 1 : 0;
  }
  EXPECT_GT(taken, kCases / 10);
  EXPECT_LT(taken, kCases * 9 / 10);
  test::expect_in_fault_matrix("list of parts changed at random", kCases);
}

}  // namespace
}  // namespace ddp::ckpt
