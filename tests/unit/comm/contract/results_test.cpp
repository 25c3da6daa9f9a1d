// SPDX-License-Identifier: Apache-2.0
// What the operations of a group compute.
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/half_precision.h"
#include "tests/unit/comm/contract/group_contract.h"

namespace ddp::comm::test {
namespace {

using testing::Each;
using testing::ElementsAre;

class GroupResults : public GroupContract {};

INSTANTIATE_TEST_SUITE_P(Of, GroupResults, testing::ValuesIn(kAllKinds), name_of_kind);

// The numbers of a rank. Their sums are exact.
std::vector<float> numbers_of(int rank, std::size_t count) {
  std::vector<float> numbers;
  for (std::size_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<float>(i % 7) + 10 * static_cast<float>(rank));
  return numbers;
}

float reduced(float a, float b, ReduceOp op) {
  return op == ReduceOp::sum ? a + b : op == ReduceOp::min ? std::min(a, b) : std::max(a, b);
}

// What these numbers of all ranks become.
std::vector<float> reduced(const Group& group, std::size_t count, ReduceOp op = ReduceOp::sum) {
  auto result = numbers_of(0, count);
  for (int rank = 1; rank < group.size(); ++rank) {
    const auto more = numbers_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) result[i] = reduced(result[i], more[i], op);
  }
  return result;
}

std::vector<float> part_of(const std::vector<float>& all, std::size_t first, std::size_t count) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

TEST_P(GroupResults, AllReduce) {
  run_all_sizes([](GpuRank r) {
    for (const std::size_t count : {1, 7, 5000}) {
      const Numbers own(r, count);
      const Numbers of_group(r, r.group.allocate(count * sizeof(float)), count);
      for (const auto& data : {own, of_group}) {
        for (const auto op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
          data.put(numbers_of(r.rank, count));
          r.group.all_reduce(data.buffer, op, "bucket 3").wait();
          EXPECT_EQ(data.get(), reduced(r.group, count, op)) << to_string(op);
        }
      }
    }
  });
}

template <class T>
void reduce_type(const GpuRank& r, ElementType type, const std::function<T(int)>& value) {
  const Numbers<T> data(r, 8, type);
  for (const auto& [op, expected] :
       {std::pair(ReduceOp::sum, 6), {ReduceOp::min, 1}, {ReduceOp::max, 3}}) {
    data.fill(value(r.rank + 1));
    r.group.all_reduce(data.buffer, op).wait();
    EXPECT_THAT(data.get(), Each(value(expected))) << to_string(type) << " " << to_string(op);
  }
}
template <class T>
void reduce_type(const GpuRank& r) {
  reduce_type<T>(r, element_type_of<T>(), [](int i) { return static_cast<T>(i); });
}

TEST_P(GroupResults, AllReduceOfEachTypeByEachOperation) {
  run(3, [this](GpuRank r) {
    reduce_type<std::uint8_t>(r);
    reduce_type<std::int8_t>(r);
    if (kind.way != Way::nccl) reduce_type<std::int16_t>(r);
    reduce_type<std::int32_t>(r);
    reduce_type<std::int64_t>(r);
    reduce_type<float>(r);
    reduce_type<double>(r);
    reduce_type<std::uint16_t>(r, ElementType::f16,
                               [](int i) { return float_to_f16(static_cast<float>(i)); });
    reduce_type<std::uint16_t>(r, ElementType::bf16,
                               [](int i) { return float_to_bf16(static_cast<float>(i)); });
  });
}

TEST_P(GroupResults, ReduceScatterAndAllGather) {
  run_all_sizes([](GpuRank r) {
    for (const std::size_t count : {1, 7, 3000}) {
      const std::size_t total = count * static_cast<std::size_t>(r.group.size());
      const Numbers input(r, total);
      const Numbers part(r, count);
      const Numbers all(r, total);
      input.put(numbers_of(r.rank, total));
      r.group.reduce_scatter(input.buffer, part.buffer, ReduceOp::sum).wait();
      const auto sums = reduced(r.group, total);
      EXPECT_EQ(part.get(), part_of(sums, static_cast<std::size_t>(r.rank) * count, count));
      r.group.all_gather(part.buffer, all.buffer).wait();
      EXPECT_EQ(all.get(), sums);
    }
  });
}

// In unequal parts, too, most of which are empty.
TEST_P(GroupResults, ReduceScatterAndAllGatherInPlace) {
  run_all_sizes([](GpuRank r) {
    for (const std::size_t count : {1, 7, 5000}) {
      Cut uneven{std::vector<std::size_t>(static_cast<std::size_t>(r.group.size()), 0)};
      uneven.sizes.back() = count - count / 3;
      uneven.sizes.front() += count / 3;
      for (const Cut& cut : {Cut(), uneven}) {
        const Numbers data(r, count);
        const Starts starts = starts_of(cut, count, r.group.size());
        const std::size_t first = starts[static_cast<std::size_t>(r.rank)];
        const Buffer mine = part_of(data.buffer, starts, r.rank);
        data.put(numbers_of(r.rank, count));
        r.group.reduce_scatter(data.buffer, cut, ReduceOp::sum).wait();
        const auto sums = read<float>(mine, r.stream);
        EXPECT_EQ(sums, part_of(reduced(r.group, count), first, mine.count));
        data.fill(-1);  // the other parts are undefined
        write(mine, sums);
        r.group.all_gather(data.buffer, cut).wait();
        EXPECT_EQ(data.get(), reduced(r.group, count));
      }
    }
  });
}

TEST_P(GroupResults, BroadcastFromEachRank) {
  run_all_sizes([](GpuRank r) {
    for (const std::size_t count : {1, 7, 5000}) {
      const Numbers data(r, count);
      for (int root = 0; root < r.group.size(); ++root) {
        data.put(numbers_of(r.rank, count));
        r.group.broadcast(data.buffer, root).wait();
        EXPECT_EQ(data.get(), numbers_of(root, count));
      }
    }
  });
}

// The parts of an all_to_all; `size` is the number of elements that a rank sends to another one.
void exchange(const GpuRank& r, bool equal, const std::function<int(int from, int to)>& size) {
  PartSizes sizes;
  std::vector<std::int32_t> input;
  std::vector<std::int32_t> expected;
  const auto append_part = [&](std::vector<std::int32_t>& to, int sender, int receiver) {
    const int count = size(sender, receiver);
    for (int i = 0; i < count; ++i) to.push_back(100000 * sender + 10000 * receiver + i);
    return static_cast<std::size_t>(count);
  };
  for (int peer = 0; peer < r.group.size(); ++peer) {
    sizes.input.push_back(append_part(input, r.rank, peer));
    sizes.output.push_back(append_part(expected, peer, r.rank));
  }
  const Numbers<std::int32_t> from(r, input.size());
  const Numbers<std::int32_t> to(r, expected.size());
  from.put(input);
  for (int round = 0; round < 3; ++round) {
    to.fill(-1);
    r.group.all_to_all(from.buffer, to.buffer, equal ? PartSizes() : sizes, "parts").wait();
    EXPECT_EQ(to.get(), expected);
  }
}

TEST_P(GroupResults, AllToAll) {
  run_all_sizes([](GpuRank r) {
    exchange(r, true, [](int, int) { return 700; });
    exchange(r, false, [](int from, int to) { return (from + 2 * to) % 4 * 300; });
    exchange(r, false, [](int from, int to) {
      return (3 * from + 5 * to) % 7 == 0 ? 0 : 1 + 10 * from + to;
    });
  });
}

// All ranks may first send and then receive, and messages keep their order.
TEST_P(GroupResults, Messages) {
  run(4, [](GpuRank r) {
    const int next = (r.rank + 1) % 4;
    const int previous = (r.rank + 3) % 4;
    std::vector<Numbers<>> sent;
    std::vector<Numbers<>> received;
    std::vector<Work> works;
    for (const std::size_t count : {1, 7, 5000, 5000}) {
      sent.emplace_back(r, count);
      sent.back().fill(static_cast<float>(10 * r.rank) + static_cast<float>(works.size()));
      works.push_back(r.group.send(sent.back().buffer, next, "there"));
    }
    EXPECT_EQ(r.group.all_reduce_value<std::int64_t>(1, ReduceOp::sum), 4);
    for (const std::size_t count : {1, 7, 5000, 5000}) {
      received.emplace_back(r, count);
      works.push_back(r.group.receive(received.back().buffer, previous, "here"));
    }
    for (const auto& work : works) work.wait();
    for (std::size_t i = 0; i < received.size(); ++i) {
      EXPECT_THAT(received[i].get(),
                  Each(static_cast<float>(10 * previous) + static_cast<float>(i)));
    }
  });
}

TEST_P(GroupResults, NothingIsSentToo) {
  run(2, [](GpuRank r) {
    const Numbers data(r, 1);
    const Buffer none = data.buffer.slice(0, 0);
    r.group.all_reduce(none, ReduceOp::sum).wait();
    r.group.broadcast(none, 1).wait();
    r.group.all_gather(none, none).wait();
    r.group.reduce_scatter(none, none, ReduceOp::sum).wait();
    const Work sent = r.group.send(none, 1 - r.rank);
    r.group.receive(none, 1 - r.rank).wait();
    sent.wait();
    r.group.barrier().wait();
  });
}

TEST_P(GroupResults, ValuesAndTextsOfTheHosts) {
  run(4, [](GpuRank r) {
    EXPECT_EQ(r.group.all_reduce_value<std::int64_t>(r.rank, ReduceOp::sum), 6);
    EXPECT_THAT(r.group.all_gather_text(std::string(static_cast<std::size_t>(r.rank), 'x')),
                ElementsAre("", "x", "xx", "xxx"));
    EXPECT_EQ(r.group.broadcast_text(r.rank == 2 ? "from two" : "ignored", 2), "from two");
    EXPECT_EQ(r.group.broadcast_text("", 0), "");
    EXPECT_EQ(r.group.channel("norm").all_reduce_value<float>(1, ReduceOp::sum), 4);
  });
}

TEST_P(GroupResults, WrongArgumentsAreRefusedAtTheCall) {
  run(2, [](GpuRank r) {
    const Numbers data(r, 8);
    const Buffer& eight = data.buffer;
    const Buffer four = eight.slice(0, 4);
    Buffer elsewhere = four;
    elsewhere.memory = r.memory == Memory::host ? Memory::device : Memory::host;
    const std::vector<std::function<void()>> calls{
        [&] { r.group.reduce_scatter(four, eight, ReduceOp::sum); },
        [&] { r.group.all_gather(eight, four); },
        [&] { r.group.all_gather(elsewhere, eight); },
        [&] {
          r.group.all_gather(eight, Cut{{1, 2}});
        },
        [&] { r.group.reduce_scatter(eight, Cut{{8}}, ReduceOp::sum); },
        [&] { r.group.all_to_all(four, eight); },
        [&] { r.group.broadcast(four, 2); },
        [&] { r.group.send(four, r.rank); },
        [&] { r.group.send(four, 2); },
        [&] { r.group.receive(four, -1); }};
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_THROW(calls[i](), std::invalid_argument) << "call " << i;
    }
  });
}

TEST_P(GroupResults, MemoryOfTheGroupIsZeroAndMayOutliveIt) {
  std::vector<std::shared_ptr<std::byte>> kept(2);
  run(2, [&](GpuRank r) {
    const Numbers<std::uint8_t> data(r, r.group.allocate(5000), 5000);
    EXPECT_THAT(data.get(), Each(0));
    EXPECT_NE(r.group.allocate(0), nullptr);
    kept[static_cast<std::size_t>(r.rank)] = data.memory;
  });
  EXPECT_EQ(fake::leaks(), kind.way == Way::hosts ? "" : "2 allocations");
  for (const auto& memory : kept) memory.get()[4999] = std::byte{1};
}

}  // namespace
}  // namespace ddp::comm::test
