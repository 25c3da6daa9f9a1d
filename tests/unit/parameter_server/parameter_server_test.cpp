// SPDX-License-Identifier: Apache-2.0
// Workers and servers as threads of one process, with delays where a test needs them.
#include "ddp_runtime/parameter_server/parameter_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/p2p/run_ranks.h"

namespace ddp::parameter_server {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Floats = std::vector<float>;

constexpr double kRate = 0.25;
constexpr double kMomentum = 0.9;

// A gradient that depends on the parameters, the rank and the step, as in real training.
Floats gradient_of(const Floats& values, int rank, int ranks, std::int64_t step) {
  Floats gradient(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double noise = std::sin(static_cast<double>(step) + 7 * rank + static_cast<double>(i));
    gradient[i] = static_cast<float>((values[i] - noise) / ranks);
  }
  return gradient;
}

// The result of synchronous training.
Floats synchronous(Floats values, int ranks, std::int64_t steps) {
  Floats velocity(values.size());
  for (std::int64_t step = 1; step <= steps; ++step) {
    Floats sum(values.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const auto gradient = gradient_of(values, rank, ranks, step);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      velocity[i] = static_cast<float>(kMomentum) * velocity[i] + sum[i];
      values[i] -= static_cast<float>(kRate) * velocity[i];
    }
  }
  return values;
}

struct Model {
  Floats values;
  Floats velocity;
};

// Returns rank 0's model after `steps` more steps; `before(group, step)` runs before each of them.
using Before = std::function<void(comm::Group&, std::int64_t)>;
Model train(
    int ranks, std::int64_t staleness, std::int64_t steps, Model model,
    const Before& before = [](comm::Group&, std::int64_t) {}, std::int64_t first = 1) {
  std::vector<Model> ends(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Group& group) {
    Model mine = model;
    ParameterServer server(group, mine.values, mine.velocity,
                           {.staleness = staleness, .momentum = kMomentum});
    for (std::int64_t step = first; step < first + steps; ++step) {
      before(group, step);
      server.push_and_pull(gradient_of(mine.values, group.rank(), ranks, step), kRate, mine.values);
    }
    server.settle(mine.values, mine.velocity);
    server.close();
    ends[static_cast<std::size_t>(group.rank())] = mine;
  });
  for (const auto& end : ends) {
    EXPECT_EQ(end.values, ends[0].values) << "settle() must make all ranks bitwise equal";
    EXPECT_EQ(end.velocity, ends[0].velocity);
  }
  return ends[0];
}

Model fresh(std::size_t size) {
  Model model{Floats(size), Floats(size)};
  for (std::size_t i = 0; i < size; ++i) model.values[i] = static_cast<float>(i) / 10;
  return model;
}

void expect_near(const Floats& got, const Floats& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-6) << i;
}

// Uses sizes that are not divisible by the number of shards, and fewer parameters than ranks.
TEST(ParameterServer, WithoutStalenessEqualsSynchronousTraining) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::size_t size : {1, 2, 10, 33}) {
      const auto model = fresh(size);
      expect_near(train(ranks, 0, 12, model).values, synchronous(model.values, ranks, 12));
    }
  }
}

TEST(ParameterServer, WithoutStalenessResultDoesNotDependOnArrivalOrder) {
  const auto delayed = [](int slow) {
    return train(3, 0, 8, fresh(10), [slow](comm::Group& group, std::int64_t) {
      if (group.rank() == slow) std::this_thread::sleep_for(2ms);
    });
  };
  const auto one = delayed(0);
  for (const int slow : {1, 2}) EXPECT_EQ(delayed(slow).values, one.values) << slow;
}

// Uses the code path of stale runs, but all ranks read after all have pushed, so nothing is stale.
TEST(ParameterServer, SettledAfterEachStepEqualsSynchronousTraining) {
  const auto model = fresh(10);
  comm::run_ranks(3, [&](comm::Group& group) {
    Model mine = model;
    ParameterServer server(group, mine.values, mine.velocity,
                           {.staleness = 4, .momentum = kMomentum});
    for (std::int64_t step = 1; step <= 12; ++step) {
      server.push_and_pull(gradient_of(mine.values, group.rank(), 3, step), kRate, mine.values);
      server.settle(mine.values, mine.velocity);
    }
    server.close();
    expect_near(mine.values, synchronous(model.values, 3, 12));
  });
}

// Rank 1 stops in its third step until the others are `staleness` steps ahead, the maximum. If they
// could not get there, the run would hang; if they got further, the largest lead would show it.
TEST(ParameterServer, RanksAreAheadOfAStragglerByAtMostTheStaleness) {
  constexpr int kRanks = 4;
  constexpr std::int64_t kDoneByStraggler = 2;
  for (const std::int64_t staleness : {0, 1, 5}) {
    std::array<std::atomic<std::int64_t>, kRanks> done{};
    std::atomic<std::int64_t> largest_lead = 0;
    std::array<std::int64_t, kRanks> told{};
    const auto wait_for_the_others = [&] {
      for (int other = 0; other < kRanks; ++other) {
        while (other != 1 && done[other] < kDoneByStraggler + staleness) std::this_thread::yield();
      }
      std::this_thread::sleep_for(20ms);  // enough time to exceed the limit
    };
    comm::run_ranks(kRanks, [&](comm::Group& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      Floats values(9);
      Floats velocity(9);
      ParameterServer server(group, values, velocity, {.staleness = staleness});
      for (std::int64_t step = 1; step <= 20; ++step) {
        for (const auto& other : done) {
          const std::int64_t lead = step - 1 - other;
          if (lead > largest_lead) largest_lead = lead;
        }
        if (rank == 1 && step == kDoneByStraggler + 1) wait_for_the_others();
        done[rank] = step;
        server.push_and_pull(Floats(9, 1), 1, values);
      }
      server.settle(values, velocity);
      told[rank] = server.lead().largest;
      server.close();
      // Every gradient must count exactly once, in any order of arrival.
      EXPECT_THAT(values, testing::Each(-20 * kRanks));
    });
    EXPECT_EQ(largest_lead, staleness);
    EXPECT_EQ(told[0], staleness) << "the server must report the largest lead";
  }
}

TEST(ParameterServer, ContinuesBitwiseFromSettledState) {
  const auto model = fresh(10);
  const auto whole = train(2, 0, 10, model);
  const auto half = train(2, 0, 4, model);
  const auto rest = train(
      2, 0, 6, half, [](comm::Group&, std::int64_t) {}, 5);
  EXPECT_EQ(rest.values, whole.values);
  EXPECT_EQ(rest.velocity, whole.velocity);
}

// Settles twice with steps in between: a rank that continues first must not change settled values.
TEST(ParameterServer, CanSettleRepeatedly) {
  comm::run_ranks(3, [](comm::Group& group) {
    Floats values(5);
    Floats velocity(5);
    ParameterServer server(group, values, velocity, {.staleness = 3});
    for (int round = 1; round <= 4; ++round) {
      for (int step = 0; step < 5; ++step) server.push_and_pull(Floats(5, 1), 1, values);
      if (group.rank() == round % 3) std::this_thread::sleep_for(3ms);
      server.settle(values, velocity);
      EXPECT_THAT(values, testing::Each(-15 * round));
    }
    server.close();
  });
}

TEST(ParameterServer, StepWithoutAGradientCounts) {
  comm::run_ranks(2, [](comm::Group& group) {
    Floats values(4);
    Floats velocity(4);
    ParameterServer server(group, values, velocity, {.staleness = 1});
    for (int step = 0; step < 6; ++step) {
      const bool none = group.rank() == 1 && step % 2 == 0;
      server.push_and_pull(none ? Floats{} : Floats(4, 1), 1, values);
    }
    server.settle(values, velocity);
    server.close();
    EXPECT_THAT(values, testing::Each(-9));
  });
}

TEST(ParameterServer, WeightDecayAppliesToTheFirstParameters) {
  comm::run_ranks(2, [](comm::Group& group) {
    Floats values(6, 1);
    Floats velocity(6);
    ParameterServer server(group, values, velocity,
                           {.staleness = 0, .weight_decay = 0.5, .decayed = 4});
    server.push_and_pull(Floats(6, 0), 1, values);
    server.settle(values, velocity);
    server.close();
    EXPECT_THAT(values, testing::ElementsAre(0.5, 0.5, 0.5, 0.5, 1, 1));
  });
}

TEST(ParameterServer, FailureReachesWaitingRanks) {
  std::mutex mutex;
  std::vector<std::string> told;
  try {
    comm::run_ranks(3, [&](comm::Group& group) {
      Floats values(4);
      ParameterServer server(group, values, values, {.staleness = 1});
      try {
        for (int step = 1; step <= 10; ++step) {
          if (group.rank() == 2 && step == 4) throw std::runtime_error("bad sample 17");
          server.push_and_pull(Floats(4, 1), 1, values);
        }
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        told.emplace_back(e.what());
        throw;
      }
    });
    FAIL();
  } catch (const std::exception& e) {
    EXPECT_STREQ(e.what(), "bad sample 17");
  }
  EXPECT_THAT(told,
              testing::UnorderedElementsAre("bad sample 17", "bad sample 17", "bad sample 17"));
}

TEST(ParameterServer, MissingRankIsNamedOnTimeout) {
  comm::GroupOptions impatient;
  impatient.limits.timeout = 200ms;
  std::string told;
  std::atomic<bool> over = false;
  try {
    comm::run_ranks(
        2,
        [&](comm::Group& group) {
          Floats values(4);
          ParameterServer server(group, values, values, {.staleness = 2});
          for (int step = 1; step <= 10; ++step) {
            while (group.rank() == 1 && step == 3 && !over) std::this_thread::yield();
            try {
              server.push_and_pull(Floats(4, 1), 1, values);
            } catch (...) {
              over = true;
              throw;
            }
          }
        },
        impatient);
  } catch (const BrokenCollective& e) {
    told = e.what();
  }
  EXPECT_EQ(told, "rank 0 waited 0 s after step 5 for rank 1, which has completed 2 steps");
}

}  // namespace
}  // namespace ddp::parameter_server
