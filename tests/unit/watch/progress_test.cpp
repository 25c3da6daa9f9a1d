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
    for (auto& process : now_.processes) process.io = 100;
    now_.traffic = TcpTraffic{1000, 1};
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

TEST_F(Progress, BeginsAQuietPeriodAtTheFirstQuietReading) {
  EXPECT_EQ(meter_.quiet_since(), std::nullopt);
  add(2);
  EXPECT_EQ(meter_.quiet_since(), std::nullopt) << "its traffic may have moved";
  add(3);
  EXPECT_EQ(meter_.quiet_since(), at(2));
  add(4);
  EXPECT_EQ(meter_.quiet_since(), at(2));
  task().cpu += milliseconds(30);
  add(5);
  EXPECT_EQ(meter_.quiet_since(), std::nullopt);
}

TEST(ProgressMeter, AsksForTrafficNoMoreOftenThanItMay) {
  ProgressMeter meter{std::chrono::seconds(5)};
  Reading reading;
  reading.processes.resize(1);
  reading.processes[0].cpu = milliseconds(100);
  std::vector<int> asked;
  for (int i = 0; i <= 13; ++i) {
    reading.time = at(i);
    reading.traffic.reset();
    if (meter.needs_traffic(reading)) {
      asked.push_back(i);
      reading.traffic = TcpTraffic{i < 11 ? 0U : 10'000U, 1};
    }
    meter.add(reading);
    EXPECT_EQ(meter.quiet_since(), i >= 6 && i < 11 ? std::optional(at(1)) : std::nullopt) << i;
  }
  EXPECT_EQ(asked, (std::vector<int>{1, 6, 11}));
}

TEST(ProgressMeter, CountsWhatARankDidBeforeTheFirstReading) {
  const auto is_judged = [](milliseconds cpu, std::uint64_t io) {
    Reading reading;
    reading.processes.resize(2);
    reading.processes[0].cpu = cpu;
    reading.processes[1].pid = 11;
    reading.processes[1].io = io;
    ProgressMeter meter;
    for (const double seconds : {0.0, 1.0, 2.0}) {
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
      {"io noise", false, [](Reading& r) { *r.processes[1].io += 4000; }},
      {"io", true, [](Reading& r) { *r.processes[1].io += 4100; }},
      {"io not readable any more", false, [](Reading& r) { r.processes[1].io.reset(); }},
      {"io readable again", false, [](Reading& r) { r.processes[1].io = 1U << 20U; }},
      {"born", true, [](Reading& r) { r.processes.emplace_back().pid = 12; }},
      {"ended", true, [](Reading& r) { r.processes.pop_back(); }},
      {"another process with the same pid", true, [](Reading& r) { ++r.processes[1].start; }},
      {"a heartbeat", false, [](Reading& r) { r.traffic->bytes += 120; }},
      {"traffic", true, [](Reading& r) { r.traffic->bytes += 140; }},
      {"less traffic", true, [](Reading& r) { r.traffic->bytes -= 140; }},
      {"sockets", true, [](Reading& r) { ++r.traffic->sockets; }},
      {"other order", false, [](Reading& r) { std::swap(r.processes[0], r.processes[1]); }},
  };
  double time = 1;
  for (const auto& c : cases) {
    add(++time);
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
  *task().io += 1U << 20U;
  EXPECT_FALSE(meter_.needs_traffic(now_));
}

TEST_F(Progress, IsNotSureWhenTrafficBecomesKnownOrUnknown) {
  add(2);
  add(3);
  EXPECT_EQ(meter_.quiet_since(), at(2));
  now_.traffic.reset();
  add(4);
  EXPECT_EQ(meter_.quiet_since(), std::nullopt);
  add(5);
  EXPECT_EQ(meter_.quiet_since(), at(4)) << "the kernel has begun to refuse";
}

TEST(ProgressMeter, DoesWithoutTrafficThatTheKernelNeverTells) {
  ProgressMeter meter;
  meter.add({at(0), {}, std::nullopt});
  for (int i = 1; i <= 3; ++i) meter.add({at(i), {Process{}}, std::nullopt});
  EXPECT_EQ(meter.quiet_since(), at(2));
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
  EXPECT_EQ(meter_.quiet_since(), at(2));
  add(12.1);
  EXPECT_EQ(meter_.quiet_since(), std::nullopt);
  EXPECT_EQ(meter_.stopped_since(), at(12.1));
  EXPECT_EQ(meter_.uninterruptible_since(), at(12.1));
  add(13);
  add(14);
  EXPECT_EQ(meter_.quiet_since(), at(13));
}

TEST_F(Progress, IgnoresReadingsInQuickSuccession) {
  add(2);
  add(3);
  task().cpu += milliseconds(10);
  add(3.1);
  EXPECT_EQ(meter_.quiet_since(), at(2));
}

TEST_F(Progress, KnowsSinceWhenAProcessIsStopped) {
  now_.processes[1].state = 'T';
  add(2);
  add(3);
  EXPECT_EQ(meter_.stopped_since(), at(2));
  EXPECT_EQ(meter_.stopped_process(), 11);
  task().state = 'T';
  add(4);
  EXPECT_EQ(meter_.stopped_since(), at(4)) << "another one";
  EXPECT_EQ(meter_.stopped_process(), 10);
  task().cpu += milliseconds(10);
  add(5);
  EXPECT_EQ(meter_.stopped_since(), at(5)) << "it ran in between";
  task().state = now_.processes[1].state = 'S';
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
