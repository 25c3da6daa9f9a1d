// SPDX-License-Identifier: Apache-2.0
// Tests all_to_all of GPU memory, by NCCL and through the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/comm/device/staged_ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm {
namespace {

using test::GpuRank;
using test::GpuTest;
using test::on_stream;

// Some parts are empty.
std::size_t part_size(int from, int to) {
  return static_cast<std::size_t>((from + 2 * to) % 4) * 300;
}
std::vector<std::int32_t> part(int from, int to, std::size_t size) {
  return std::vector<std::int32_t>(size, 100 * from + to);
}

void exchange_parts(GpuRank rank, bool equal) {
  const int ranks = rank.group.size();
  const auto size = [&](int from, int to) { return equal ? 700 : part_size(from, to); };
  PartSizes sizes;
  std::vector<std::int32_t> input;
  std::vector<std::int32_t> expected;
  for (int peer = 0; peer < ranks; ++peer) {
    sizes.input.push_back(size(rank.rank, peer));
    sizes.output.push_back(size(peer, rank.rank));
    for (const auto value : part(rank.rank, peer, sizes.input.back())) input.push_back(value);
    for (const auto value : part(peer, rank.rank, sizes.output.back())) expected.push_back(value);
  }
  if (equal) sizes = {};
  const auto memory = test::device_memory((input.size() + expected.size()) * 4 + 8);
  const Buffer from = on_stream(memory.get(), input.size(), ElementType::i32, rank.stream);
  const Buffer to =
      on_stream(memory.get() + from.bytes(), expected.size(), ElementType::i32, rank.stream);
  test::write(from, input);
  test::write(to, std::vector<std::int32_t>(expected.size(), -1));
  for (int round = 0; round < 3; ++round) {
    auto keep = std::make_shared<int>(0);
    const std::weak_ptr<int> held = keep;
    const Work work = rank.group.all_to_all(from, to, sizes, "parts", std::move(keep));
    work.wait();
    EXPECT_EQ(test::read<std::int32_t>(to, rank.stream), expected);
    work.wait_host();
    rank.group.barrier().wait();
    // NCCL's watchdog drops it a moment later.
    for (int polls = 0; polls < 30'000 && !held.expired(); ++polls) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(held.expired());
  }
}

void exchange_all(GpuRank rank) {
  exchange_parts(rank, true);
  exchange_parts(rank, false);
}

class AllToAllOnGpus : public GpuTest {};

TEST_F(AllToAllOnGpus, ByNccl) {
  for (const int ranks : {1, 2, 4}) {
    EXPECT_THAT(test::run_gpu_ranks(ranks, exchange_all), testing::Each(""));
  }
}

TEST_F(AllToAllOnGpus, NcclRefusesInt16) {
  const auto errors = test::run_gpu_ranks(2, [](GpuRank rank) {
    const auto memory = test::device_memory(64);
    const Buffer data = on_stream(memory.get(), 4, ElementType::i16, rank.stream);
    EXPECT_THAT(error_of([&] { rank.group.all_reduce(data, ReduceOp::sum); }),
                testing::HasSubstr("NCCL has no 16-bit integers"));
    EXPECT_THAT(error_of([&] { rank.group.send(data, 1 - rank.rank); }),
                testing::HasSubstr("NCCL has no 16-bit integers"));
    Buffer bytes = data;
    bytes.type = ElementType::i8;
    test::write(bytes, std::vector<std::int8_t>{-3, 4, static_cast<std::int8_t>(rank.rank), 1});
    rank.group.all_reduce(bytes, ReduceOp::sum).wait();
    EXPECT_THAT(test::read<std::int8_t>(bytes, rank.stream), testing::ElementsAre(-6, 8, 1, 2));
  });
  EXPECT_THAT(errors, testing::Each(""));
}

class AllToAllThroughTheHost : public test::StagedGroupTest {};

TEST_F(AllToAllThroughTheHost, WithAnyMemory) {
  for (const std::size_t memory_bytes : {std::size_t{64}, std::size_t{1} << 20}) {
    test::StagedSettings settings;
    settings.memory_bytes = memory_bytes;
    EXPECT_THAT(test::run_staged_ranks(4, exchange_all, settings), testing::Each(""));
  }
}

}  // namespace
}  // namespace ddp::comm
