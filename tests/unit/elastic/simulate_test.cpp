// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/simulate.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace ddp::elastic {
namespace {

double mean_ettr(const SimulatedJob& job, int seeds = 4) {
  double sum = 0;
  for (int seed = 0; seed < seeds; ++seed)
    sum += simulate(job, static_cast<std::uint64_t>(seed)).ettr;
  return sum / seeds;
}

// The loss by Young's approximation: the stalls, and for each failure half an interval, the
// detection, the end of the processes and the restart.
double expected_ettr(const SimulatedJob& job) {
  const Seconds interval = job.interval > 0 ? job.interval : young_interval(job);
  const Seconds between = job.node_mtbf / static_cast<double>(job.nodes);
  const Seconds node_part = 1 - job.crashes;
  const Seconds detection = 10 * node_part + job.crashes * 0.5;
  return 1 / (1 + job.stall / interval +
              (interval / 2 + detection + job.ending + job.checking + job.restart) / between);
}

TEST(SimulatedJobs, LoseWhatYoungsFormulaSays) {
  for (const std::size_t nodes : {16, 1250}) {
    for (const Seconds restart : {15, 90, 300}) {
      SimulatedJob job;
      job.nodes = nodes;
      job.spares = nodes / 20 + 1;  // enough to keep the size
      job.restart = restart;
      job.length = 10 * 86400.0;
      job.node_mtbf /= nodes < 1000 ? 20 : 1;
      EXPECT_NEAR(mean_ettr(job), expected_ettr(job), 0.02)
          << nodes << " nodes, restart " << restart;
    }
  }
}

TEST(SimulatedJobs, WithoutFailuresLoseTheStallsOnly) {
  SimulatedJob job;
  job.node_mtbf = 1e15;
  job.interval = 600;
  job.stall = 60;
  const auto outcome = simulate(job, 1);
  EXPECT_EQ(outcome.failures, 0);
  EXPECT_EQ(outcome.generations, 1);
  EXPECT_NEAR(outcome.ettr, 600.0 / 660, 0.001);
}

// Its best interval is longer than the job.
TEST(SimulatedJobs, KeepWhatTheyHaveDoneAtTheEnd) {
  SimulatedJob job;
  job.nodes = 1;
  job.node_mtbf = 1e15;
  job.length = 7200;
  job.restart = 72;
  const auto outcome = simulate(job, 1);
  EXPECT_EQ(outcome.failures, 0);
  EXPECT_NEAR(outcome.ettr, 0.99, 1e-9);
}

TEST(SimulatedJobs, OfTenThousandNodesKeepGoing) {
  SimulatedJob job;
  job.nodes = 10'000;
  job.length = 86400.0;
  job.stall = 0.3;
  job.restart = 60;
  const auto outcome = simulate(job, 1);
  EXPECT_GT(outcome.failures, 20);
  EXPECT_GT(outcome.ettr, 0.85);
  EXPECT_FALSE(outcome.finished_early);
}

TEST(SimulatedJobs, ShrinkWithoutSpares) {
  SimulatedJob job;
  job.nodes = 20;
  job.node_mtbf = 100 * 3600.0;
  const auto shrinking = simulate(job, 3);
  EXPECT_FALSE(shrinking.finished_early);
  EXPECT_GT(shrinking.ettr, 0.6);
  // Waiting for the repair of each node costs more.
  job.min_nodes = job.nodes;
  EXPECT_LT(simulate(job, 3).ettr, shrinking.ettr - 0.1);
}

TEST(SimulatedJobs, MustBePossible) {
  SimulatedJob job;
  job.crashes = 0.8;
  job.hangs = 0.3;
  EXPECT_THROW(simulate(job, 1), UsageError);
  job = {};
  job.min_nodes = job.nodes + 1;
  EXPECT_THROW(simulate(job, 1), UsageError);
  job = {};
  job.stall = 2 * job.length;
  EXPECT_THROW(simulate(job, 1), UsageError);
}

TEST(SimulatedJobs, ThatWouldTakeHoursAreRefused) {
  SimulatedJob job;
  job.nodes = 100'000;
  EXPECT_THROW(simulate(job, 1), UsageError);
  job = {};
  job.length = 1e300;
  EXPECT_THROW(simulate(job, 1), UsageError);
  job = {};
  job.node_mtbf = 1e-290;
  EXPECT_THROW(simulate(job, 1), UsageError);
}

}  // namespace
}  // namespace ddp::elastic
