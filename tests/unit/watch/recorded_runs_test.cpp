// SPDX-License-Identifier: Apache-2.0
// The meter and the rule on recorded runs of three ranks; recorded_runs.txt says how they were
// made.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "spank_plugin/watch/progress.h"
#include "spank_plugin/watch/stall_rule.h"

namespace ddp::watch {
namespace {

constexpr auto kStall = std::chrono::seconds(10);

// A rank, rebuilt from the changes that were recorded: its task, and a second process.
class RecordedRank {
 public:
  RecordedRank() {
    now_.processes.resize(2);
    now_.processes[1].pid = 1;
    now_.processes[0].io = 0;
    traffic_.sockets = 1;
  }

  void add(Clock::time_point time, const std::string& changes) {
    now_.time = time;
    now_.traffic.reset();
    auto& task = now_.processes[0];
    task.state = now_.processes[1].state = 'S';
    std::istringstream text(changes);
    int number = 0;
    for (char kind = 0; text >> kind;) {
      if ((kind == 'c' || kind == 'i' || kind == 'e') && !(text >> number))
        ADD_FAILURE() << changes;
      if (kind == 'c') task.cpu += std::chrono::milliseconds(10 * number);
      if (kind == 'i') *task.io += static_cast<std::uint64_t>(number);
      if (kind == 'b') ++now_.processes[1].start;
      if (kind == 'n') traffic_.bytes += 1U << 20U;
      if (kind == 'T') task.state = 'T';
      if (kind == 'D') now_.processes[1].state = 'D';
      if (kind == 'e') state_ = number == 0 ? RankState::finished : RankState::failed;
    }
    if (meter_.needs_traffic(now_)) now_.traffic = traffic_;
    meter_.add(now_);
  }

  RankReport report() const {
    const auto length = [this](std::optional<Clock::time_point> since) {
      return since ? std::optional(now_.time - *since) : std::nullopt;
    };
    return {state_, length(meter_.quiet_since()), length(meter_.stopped_since()),
            length(meter_.uninterruptible_since())};
  }

 private:
  Reading now_;
  TcpTraffic traffic_;
  RankState state_ = RankState::running;
  ProgressMeter meter_;
};

// A run, and the last finding in it that is one.
class RecordedRun {
 public:
  RecordedRun() { add("0 - - -"); }

  void add(const std::string& line) {
    std::istringstream words(line);
    double interval = 0;
    words >> interval;
    time_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(interval));
    std::vector<RankReport> reports;
    for (auto& rank : ranks_) {
      std::string changes;
      ASSERT_TRUE(words >> changes) << line;
      rank.add(time_, changes);
      reports.push_back(rank.report());
    }
    const Finding finding = find_stall(reports, kStall);
    const bool is_one =
        finding.kind == FindingKind::stalled || finding.kind == FindingKind::stopped;
    if (is_one) finding_ = finding;
  }
  const Finding& finding() const noexcept { return finding_; }

 private:
  Clock::time_point time_;
  std::array<RecordedRank, 3> ranks_;
  Finding finding_;
};

std::map<std::string, RecordedRun> play_all() {
  std::ifstream file(SLURM_DDP_SOURCE_DIR "/tests/unit/watch/recorded_runs.txt");
  std::map<std::string, RecordedRun> runs;
  RecordedRun* run = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#") || line.empty()) continue;
    if (line.starts_with("run ")) {
      run = &runs[line.substr(4)];
    } else if (run != nullptr) {
      run->add(line);
    }
  }
  return runs;
}

using Names = std::set<std::string>;

TEST(RecordedRuns, OfHangsAreFoundWhereTheRanksWait) {
  Names found;
  Names missed;
  for (const auto& [name, run] : play_all()) {
    if (!name.starts_with("hang.")) continue;
    const bool is_found = run.finding().kind != FindingKind::none;
    (is_found ? found : missed).insert(name.substr(5));
  }
  EXPECT_EQ(found,
            (Names{"all_deadlock", "atexit", "dstate", "exception", "exception_thread", "exit0",
                   "extra", "fifo", "flock", "gil_sleep", "loader_sleep", "mismatch", "missing",
                   "orphans", "poll_sleep", "rank_killed", "sigstop", "stdin", "worker_lock"}));
  // Two wait busily, four end by themselves, and one is slow.
  EXPECT_EQ(missed, (Names{"all_spin", "gil_spin", "exception_gloo", "rank0_dead", "store_lost",
                           "worker_killed", "cpu_starved"}));
}

TEST(RecordedRuns, OfHangsNameTheOddRank) {
  using Ranks = std::vector<std::size_t>;
  auto runs = play_all();
  EXPECT_EQ(runs["hang.sigstop"].finding().kind, FindingKind::stopped);
  EXPECT_EQ(runs["hang.sigstop"].finding().stopped, Ranks{1});
  EXPECT_EQ(runs["hang.dstate"].finding().uninterruptible, Ranks{1});
  EXPECT_EQ(runs["hang.exit0"].finding().finished, Ranks{1});
  EXPECT_EQ(runs["hang.atexit"].finding().finished, (Ranks{0, 2}));
  EXPECT_EQ(runs["hang.rank_killed"].finding().failed, Ranks{1});
}

TEST(RecordedRuns, OfHealthyProgramsAreToldOnlyIfTheyAreIdle) {
  std::size_t healthy = 0;
  std::size_t told = 0;
  Names kinds;
  for (const auto& [name, run] : play_all()) {
    if (!name.starts_with("healthy.")) continue;
    ++healthy;
    if (run.finding().kind == FindingKind::none) continue;
    ++told;
    kinds.insert(name.substr(8, name.rfind('.') - 8));
  }
  EXPECT_EQ(healthy, 100U);
  EXPECT_LE(told, 10U);
  EXPECT_EQ(kinds, (Names{"server", "sleep_epoch"}));
}

}  // namespace
}  // namespace ddp::watch
