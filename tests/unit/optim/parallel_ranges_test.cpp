// SPDX-License-Identifier: Apache-2.0
// Every element is in one range, ranges begin at multiples, and libtorch's threads run them.
#include "ddp_runtime/optim/parallel_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace ddp::optim {
namespace {

class Threads {
 public:
  explicit Threads(int count) { torch::set_num_threads(count); }
  ~Threads() { torch::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = torch::get_num_threads();
};

TEST(ParallelRanges, HaveEveryElementOnce) {
  const Threads threads(3);
  constexpr std::int64_t kGrain = 10;
  for (const std::int64_t count : {0, 1, 9, 10, 11, 20, 29, 30, 31, 99, 100, 101, 1234}) {
    std::mutex mutex;
    std::set<std::pair<std::int64_t, std::int64_t>> ranges;
    for_ranges(count, kGrain, [&](std::int64_t first, std::int64_t end) {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(ranges.emplace(first, end).second) << first;
    });
    std::int64_t next = 0;
    for (const auto& [first, end] : ranges) {
      EXPECT_EQ(first, next);
      EXPECT_EQ(first % kGrain, 0);
      EXPECT_GT(end, first);
      next = end;
    }
    EXPECT_EQ(next, count);
  }
}

int threads_for(std::int64_t count, std::int64_t grain) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for_ranges(count, grain, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  return static_cast<int>(threads.size());
}

TEST(ParallelRanges, RunOnLibtorchsThreads) {
  for (const int count : {1, 2, 4}) {
    const Threads threads(count);
    EXPECT_EQ(threads_for(1000, 10), count);
    EXPECT_EQ(threads_for(20, 10), std::min(count, 2));
    EXPECT_EQ(threads_for(10, 10), 1);
  }
}

TEST(ParallelRanges, OfFewElementsRunOnThisThread) {
  const Threads threads(2);
  for_ranges(10, 10, [here = std::this_thread::get_id()](std::int64_t, std::int64_t) {
    EXPECT_EQ(std::this_thread::get_id(), here);
  });
}

TEST(ParallelRanges, PassOnWhatARangeThrows) {
  const Threads threads(2);
  EXPECT_THROW(for_ranges(100, 10,
                          [](std::int64_t, std::int64_t end) {
                            if (end == 100) throw std::out_of_range("the last range");
                          }),
               std::out_of_range);
}

}  // namespace
}  // namespace ddp::optim
