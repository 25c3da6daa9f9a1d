// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/progress.h"

#include <gtest/gtest.h>

#include <functional>

namespace ddp::watch {
namespace {

using std::chrono::milliseconds;

Clock::time_point at(double seconds) {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

// A rank of two processes, which has just been busy at second 1.
class Progress : public testing::Test {
 protected:
  Progress() {
    now_.processes.resize(2);
    now_.processes[0].pid = 10;
    now_.processes[1].pid = 11;
    now_.traffic = TcpTraffic{100, 1};
    add(0);
    now_.processes[1].cpu += milliseconds(900);
    add(1);
  }
  void add(double seconds) {
    now_.time = at(seconds);
    meter_.add(now_);
  }
  Process& task() { return now_.processes[0]; }

  Reading now_;
  ProgressMeter meter_;
};

TEST_F(Progress, BeginsAQuietPeriodAtTheLastSignOfLife) {
  EXPECT_EQ(meter_.quiet_since(), std::nullopt);
  add(2);
  EXPECT_EQ(meter_.quiet_since(), at(1));
  add(3);
  EXPECT_EQ(meter_.quiet_since(), at(1));
  task().cpu += milliseconds(30);
  add(4);
  EXPECT_EQ(meter_.quiet_since(), std::nullopt);
}

TEST(ProgressMeter, CountsWhatARankDidBeforeTheFirstReading) {
  const auto is_judged = [](milliseconds cpu, std::uint64_t io) {
    Reading reading;
    reading.processes.resize(2);
    reading.processes[0].cpu = cpu;
    reading.processes[1].pid = 11;
    reading.processes[1].io = io;
    ProgressMeter meter;
    for (const double seconds : {0.0, 1.0}) {
      reading.time = at(seconds);
      meter.add(reading);
    }
    return meter.quiet_since().has_value();
  };
  EXPECT_FALSE(is_judged(milliseconds(20), 4000)) << "it has only been started";
  EXPECT_TRUE(is_judged(milliseconds(30), 0));
  EXPECT_TRUE(is_judged(milliseconds(0), 5000));
}

TEST_F(Progress, SeesEachSignOfLifeButNotTheNoise) {
  struct Case {
    const char* what;
    bool is_progress;
    std::function<void(Reading&)> change;
  };
  const std::vector<Case> cases = {
      {"cpu noise", false, [](Reading& r) { r.processes[0].cpu += milliseconds(20); }},
      {"cpu", true, [](Reading& r) { r.processes[0].cpu += milliseconds(30); }},
      {"cpu of both", true,
       [](Reading& r) {
         for (auto& p : r.processes) p.cpu += milliseconds(15);
       }},
      {"io noise", false, [](Reading& r) { r.processes[1].io += 4000; }},
      {"io", true, [](Reading& r) { r.processes[1].io += 4100; }},
      {"io not readable any more", false, [](Reading& r) { r.processes[1].io = 0; }},
      {"born", true, [](Reading& r) { r.processes.emplace_back().pid = 12; }},
      {"ended", true, [](Reading& r) { r.processes.pop_back(); }},
      {"another process with the same pid", true, [](Reading& r) { ++r.processes[1].start; }},
      {"traffic", true, [](Reading& r) { ++r.traffic->bytes; }},
      {"sockets", true, [](Reading& r) { ++r.traffic->sockets; }},
      {"other order", false, [](Reading& r) { std::swap(r.processes[0], r.processes[1]); }},
  };
  double time = 1;
  for (const auto& c : cases) {
    add(++time);
    ASSERT_TRUE(meter_.quiet_since()) << c.what;
    c.change(now_);
    add(++time);
    EXPECT_EQ(meter_.quiet_since() == std::nullopt, c.is_progress) << c.what;
    now_.processes.resize(2);
    add(++time);
    add(++time);
  }
}

TEST_F(Progress, AsksForTrafficOnlyIfTheRestIsQuiet) {
  now_.time = at(2);
  EXPECT_TRUE(meter_.needs_traffic(now_));
  task().io += 1U << 20U;
  EXPECT_FALSE(meter_.needs_traffic(now_));
}

TEST_F(Progress, IsNotSureWhenTrafficBecomesKnownOrUnknown) {
  add(2);
  now_.traffic.reset();
  add(3);
  EXPECT_EQ(meter_.quiet_since(), std::nullopt);
}

TEST(ProgressMeter, DoesWithoutTrafficThatTheKernelNeverTells) {
  ProgressMeter meter;
  meter.add({at(0), {}, std::nullopt});
  meter.add({at(1), {Process{}}, std::nullopt});
  meter.add({at(2), {Process{}}, std::nullopt});
  EXPECT_EQ(meter.quiet_since(), at(1));
}

TEST(ProgressMeter, SaysNothingBeforeTheRankHasBeenBusy) {
  Process process;
  process.state = 'T';
  ProgressMeter meter;
  for (int i = 0; i < 5; ++i) meter.add({at(i), {process}, std::nullopt});
  EXPECT_EQ(meter.quiet_since(), std::nullopt);
  EXPECT_EQ(meter.stopped_since(), std::nullopt);
}

TEST_F(Progress, StartsAnewAfterAGapOfTheReader) {
  task().state = 'T';
  now_.processes[1].state = 'D';
  add(2);
  add(7);
  EXPECT_EQ(meter_.quiet_since(), at(1));
  add(12.1);
  EXPECT_EQ(meter_.quiet_since(), std::nullopt);
  EXPECT_EQ(meter_.stopped_since(), at(12.1));
  EXPECT_EQ(meter_.uninterruptible_since(), at(12.1));
  add(13);
  EXPECT_EQ(meter_.quiet_since(), at(12.1));
}

TEST_F(Progress, IgnoresReadingsInQuickSuccession) {
  add(2);
  task().cpu += milliseconds(10);
  add(2.1);
  EXPECT_EQ(meter_.quiet_since(), at(1));
}

TEST_F(Progress, KnowsSinceWhenTheTaskIsStopped) {
  now_.processes[1].state = 'T';
  add(2);
  EXPECT_EQ(meter_.stopped_since(), std::nullopt) << "only a child of the task is";
  task().state = 'T';
  add(3);
  add(4);
  EXPECT_EQ(meter_.stopped_since(), at(3));
  task().cpu += milliseconds(10);
  add(5);
  EXPECT_EQ(meter_.stopped_since(), at(5)) << "it ran in between";
  task().state = 'S';
  add(6);
  EXPECT_EQ(meter_.stopped_since(), std::nullopt);
}

TEST_F(Progress, KnowsSinceWhenAProcessIsUninterruptible) {
  now_.processes[1].state = 'D';
  add(2);
  add(3);
  EXPECT_EQ(meter_.uninterruptible_since(), at(2));
  now_.processes[1].state = 'S';
  add(4);
  EXPECT_EQ(meter_.uninterruptible_since(), std::nullopt);
}

}  // namespace
}  // namespace ddp::watch
