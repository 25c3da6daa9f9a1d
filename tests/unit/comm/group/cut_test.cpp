// SPDX-License-Identifier: Apache-2.0
// Tests reduce_scatter and all_gather in place: for random cuts, types, placements of ranks and
// memory, they must have the bits of all_reduce.
#include "ddp_runtime/comm/group/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>

#include "ddp_runtime/comm/group/call_record.h"
#include "ddp_runtime/comm/group/half_precision.h"
#include "tests/unit/comm/ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Cut, PartsAreEvenOrOfTheGivenSizes) {
  EXPECT_THAT(starts_of({}, 10, 4), ElementsAre(0, 3, 6, 8, 10));
  EXPECT_THAT(starts_of({{0, 7, 3}}, 10, 3), ElementsAre(0, 0, 7, 10));
  EXPECT_THROW(starts_of({{5, 5}}, 10, 3), std::invalid_argument) << "two parts for three ranks";
  EXPECT_THROW(starts_of({{5, 4}}, 10, 2), std::invalid_argument) << "nine of ten elements";
  EXPECT_THROW(starts_of({{~std::size_t{0}, 11}}, 10, 2), std::invalid_argument) << "overflows";
}

TEST(Cut, DescriptionsOfDifferentCutsDiffer) {
  std::byte memory{};
  const Buffer all{&memory, 100, ElementType::f32};
  EXPECT_EQ(describe(all, Cut()), "100 float32");
  EXPECT_EQ(describe(all, Cut{{40, 60}}), "100 float32 in parts of 40, 60");
  Cut many{std::vector<std::size_t>(50, 2)};
  const std::string text = describe(all, many);
  EXPECT_THAT(text, HasSubstr("100 float32 in parts with checksum "));
  ++many.sizes[7];
  --many.sizes[8];
  EXPECT_NE(describe(all, many), text);
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// A value whose sums need rounding, except for integers.
void put_element(ElementType type, std::byte* at, float value) {
  switch (type) {
    case ElementType::u8:
      return put(at, static_cast<std::uint8_t>(value));
    case ElementType::i8:
      return put(at, static_cast<std::int8_t>(value));
    case ElementType::i16:
      return put(at, static_cast<std::int16_t>(value));
    case ElementType::i32:
      return put(at, static_cast<std::int32_t>(value * 1000));
    case ElementType::i64:
      return put(at, static_cast<std::int64_t>(value * 1000));
    case ElementType::f16:
      return put(at, float_to_f16(value));
    case ElementType::bf16:
      return put(at, float_to_bf16(value));
    case ElementType::f32:
      return put(at, value);
    case ElementType::f64:
      return put(at, static_cast<double>(value) / 3);
  }
}

constexpr int kElementTypes = 9;

struct Trial {
  std::size_t count = 0;
  std::size_t offset = 0;  // in memory from allocate()
  bool allocated = false;
  ElementType type = ElementType::f32;
  ReduceOp op = ReduceOp::sum;
  Cut cut;
  unsigned seed = 0;
};

// The same on all ranks.
Trial random_trial(std::mt19937& random, int ranks) {
  const auto below = [&](std::size_t n) { return random() % n; };
  Trial t;
  constexpr std::size_t kLimits[] = {1, 8, 300, 5000, 40000};
  t.count = below(kLimits[below(5)] + 1);
  t.offset = 8 * below(3);
  t.allocated = below(3) > 0;
  t.type = static_cast<ElementType>(below(kElementTypes));
  t.op = static_cast<ReduceOp>(below(3));
  t.seed = static_cast<unsigned>(random());
  if (below(3) == 0) return t;
  std::size_t left = t.count;
  for (int r = 0; r < ranks; ++r) {
    const std::size_t size = r + 1 == ranks ? left : below(2) == 0 ? 0 : below(left + 1);
    t.cut.sizes.push_back(size);
    left -= size;
  }
  return t;
}

void fill(const Buffer& data, const Trial& t, int rank) {
  std::mt19937 random(t.seed + static_cast<unsigned>(rank));
  for (std::size_t i = 0; i < data.count; ++i) {
    put_element(t.type, data.slice(i, 1).data, static_cast<float>(random() % 1000) / 77);
  }
}

std::vector<std::byte> bytes_of(const Buffer& data) {
  return {data.data, data.data + data.bytes()};
}

void compare(Group& group, const Trial& t, std::byte* allocated) {
  std::vector<std::byte> own(t.count * size_of(t.type) + 1);
  const Buffer data{t.allocated ? allocated + t.offset : own.data(), t.count, t.type};
  fill(data, t, group.rank());
  group.all_reduce(data, t.op).wait();
  const auto expected = bytes_of(data);

  fill(data, t, group.rank());
  group.reduce_scatter(data, t.cut, t.op).wait();
  const Starts starts = starts_of(t.cut, t.count, group.size());
  const Buffer mine = part_of(data, starts, group.rank());
  const auto sums = std::span(expected).subspan(static_cast<std::size_t>(mine.data - data.data));
  const auto of_mine = sums.first(mine.bytes());
  ASSERT_TRUE(std::equal(of_mine.begin(), of_mine.end(), mine.data)) << "rank " << group.rank();
  // The other parts are undefined.
  for (int r = 0; r < group.size(); ++r) {
    const Buffer part = part_of(data, starts, r);
    if (r != group.rank() && part.count > 0) std::memset(part.data, 0x5a, part.bytes());
  }
  group.all_gather(data, t.cut).wait();
  ASSERT_EQ(bytes_of(data), expected) << "rank " << group.rank();

  // From a buffer that has only this rank's part, at its beginning. The group's memory is reused at
  // once.
  for (int round = 0; round < 2; ++round) {
    std::vector<std::byte> gathered(data.bytes() + 1);
    if (mine.count > 0) std::memcpy(data.data, of_mine.data(), mine.bytes());
    group.all_gather(data.slice(0, mine.count), {gathered.data(), t.count, t.type}, t.cut).wait();
    gathered.pop_back();
    ASSERT_EQ(gathered, expected) << "rank " << group.rank();
    std::memset(data.data, 0x5a, data.bytes());
  }
}

struct Shape {
  const char* name;
  std::vector<int> node_of;
};

class InPlaceParts : public testing::TestWithParam<Shape> {
 protected:
  void compare_random_trials(bool in_order) const {
    const auto& nodes = GetParam().node_of;
    test::run_ranks(
        static_cast<int>(nodes.size()),
        [&](Group& world) {
          // The whole group, and parts of it whose ranks are in the opposite order.
          Group* const part = world.split(world.rank() % 2, -world.rank());
          for (Group* group : {&world, part}) {
            const auto memory = group->allocate(40000 * 8 + 64);
            std::mt19937 random(7);
            for (int i = 0; i < 25; ++i) {
              compare(*group, random_trial(random, group->size()), memory.get());
            }
            for (int type = 0; type < kElementTypes; ++type) {  // sums round differently in each
              Trial sum;
              while (sum.count < 100) sum = random_trial(random, group->size());
              sum.type = static_cast<ElementType>(type);
              sum.op = ReduceOp::sum;
              compare(*group, sum, memory.get());
            }
          }
        },
        {.limits = {.segment_bytes = 512, .window = 3, .timeout = std::chrono::seconds(60)},
         .in_rank_order = in_order},
        [&](int rank) { return nodes[static_cast<std::size_t>(rank)]; });
  }
};

TEST_P(InPlaceParts, HaveTheBitsOfAllReduce) {
  compare_random_trials(false);
}

TEST_P(InPlaceParts, HaveTheBitsOfAllReduceInRankOrder) {
  compare_random_trials(true);
}

INSTANTIATE_TEST_SUITE_P(Shapes, InPlaceParts,
                         testing::Values(Shape{"One", {0}}, Shape{"TwoOnOneNode", {0, 0}},
                                         Shape{"ThreeOnOneNode", {0, 0, 0}},
                                         Shape{"FourNodes", {0, 1, 2, 3}},
                                         Shape{"FiveUneven", {0, 0, 0, 1, 1}},
                                         Shape{"SixCyclic", {0, 1, 2, 0, 1, 2}},
                                         Shape{"SevenNodes", {0, 1, 2, 3, 4, 5, 6}},
                                         Shape{"EightOnTwoNodes", {0, 0, 0, 0, 1, 1, 1, 1}}),
                         [](const auto& shape) { return shape.param.name; });

TEST(InPlacePartsErrors, DifferentCutsAreReported) {
  const auto text = error_of([] {
    test::run_ranks(3,
                    [](Group& group) {
                      std::vector<float> data(9000, 1);
                      const Cut cut = group.rank() == 1 ? Cut{{4000, 4000, 1000}} : Cut();
                      group.reduce_scatter(buffer_of(std::span(data)), cut, ReduceOp::sum).wait();
                    },
                    {.limits = {.timeout = std::chrono::milliseconds(300)}});
  });
  EXPECT_NE(text, "");
}

}  // namespace
}  // namespace ddp::comm
