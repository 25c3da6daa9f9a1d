// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace ddp::data {
namespace {

using namespace std::chrono_literals;

Batch numbered(std::int64_t i) {
  return {torch::full({1}, static_cast<float>(i)), {}};
}

TEST(Prefetcher, ReturnsItemsInOrderForAnyThreadSchedule) {
  Prefetcher batches(
      200,
      [](std::int64_t i) {
        std::this_thread::sleep_for((i * 37 % 5) * 50us);
        return numbered(i);
      },
      3, 8);
  for (std::int64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(batches.next().inputs.item<float>(), static_cast<float>(i));
  }
  EXPECT_THROW(batches.next(), std::out_of_range);
}

TEST(Prefetcher, NeverExceedsTheDepth) {
  std::atomic<std::int64_t> furthest{-1};
  Prefetcher batches(
      100,
      [&](std::int64_t i) {
        std::int64_t seen = furthest;
        while (seen < i && !furthest.compare_exchange_weak(seen, i)) {
        }
        return numbered(i);
      },
      2, 4);
  for (std::int64_t i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(200us);
    EXPECT_LT(furthest.load(), i + 4);
    batches.next();
  }
}

// A hundred thousand threads would exceed the limits of most systems.
TEST(Prefetcher, StartsOnlyThreadsThatCanHaveWork) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  Prefetcher batches(
      64,
      [&](std::int64_t i) {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
        return numbered(i);
      },
      100'000, 4);
  for (std::int64_t i = 0; i < 64; ++i) batches.next();
  const std::lock_guard lock(mutex);
  EXPECT_LE(threads.size(), 4U);
}

TEST(Prefetcher, ErrorReplacesItsItemAndLaterItemsFollow) {
  Prefetcher batches(
      5,
      [](std::int64_t i) {
        if (i == 2) throw std::runtime_error("sample 2 is unreadable");
        return numbered(i);
      },
      2, 4);
  batches.next();
  batches.next();
  EXPECT_THROW(batches.next(), std::runtime_error);
  EXPECT_EQ(batches.next().inputs.item<float>(), 3.0F);
}

TEST(Prefetcher, CanBeDestroyedEarly) {
  for (int round = 0; round < 50; ++round) {
    Prefetcher batches(1000, numbered, 3, 8);
    batches.next();
  }
}

}  // namespace
}  // namespace ddp::data
