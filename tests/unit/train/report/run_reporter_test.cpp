// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/report/run_reporter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
// GCC 12 with a sanitizer warns about its own <regex>.
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <regex>
#pragma GCC diagnostic pop
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/p2p/run_ranks.h"
#include "ddp_runtime/train/memory/shard_prediction.h"
#include "ddp_runtime/train/report/trace_gather.h"
#include "ddp_runtime/train/stages/stage_plan.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::train {
namespace {

profile::StepRecord step(double seconds) {
  profile::StepRecord record;
  record.time.end = record.time.begin + std::chrono::duration_cast<profile::Clock::duration>(
                                            std::chrono::duration<double>(seconds));
  record.seconds[static_cast<std::size_t>(profile::Phase::forward)] = seconds / 4;
  record.communication_bytes = 1000000;
  record.communication_seconds = seconds / 2;
  record.hidden_seconds = seconds / 8;
  return record;
}

TEST(RunReport, PartsSumToTheMeanAndRanksAreListed) {
  comm::run_ranks(2, [](comm::Group& group) {
    // Rank 1 is twice as slow.
    const std::vector<profile::StepRecord> steps(4, step(0.1 * (group.rank() + 1)));
    const auto report =
        make_run_report(group, {"ddp-train x", "ddp-train", "mlp", "digits", 10, 64, 2, 0},
                        {4, 0.5, Evaluation{0.4, 0.9, 100}, 0x1234, 0.3}, steps);
    if (group.rank() != 0) {
      EXPECT_TRUE(report.is_null());
      return;
    }
    EXPECT_EQ(report.at("schema"), "slurm-ddp/run/1");
    EXPECT_EQ(report.at("world_size"), 2);
    EXPECT_EQ(report.at("nodes"), 1);
    EXPECT_EQ(report.at("parameters_crc32c"), "0x00001234");
    EXPECT_EQ(report.at("ranks").size(), 2U);
    EXPECT_EQ(report.at("final").at("best_eval_loss"), 0.3);
    EXPECT_GT(report.at("ranks").at(1).at("peak_memory_bytes").get<std::int64_t>(), 1 << 20);
    const auto& seconds = report.at("step_seconds");
    EXPECT_NEAR(seconds.at("mean").get<double>(), 0.15, 1e-9);
    EXPECT_NEAR(seconds.at("p50").get<double>(), 0.2, 1e-9)
        << "must be the p50 of the slowest rank";
    double sum = 0;
    for (const char* part :
         {"data", "forward", "backward", "exposed_comm", "optimizer", "checkpoint", "other"}) {
      sum += seconds.at(part).get<double>();
    }
    EXPECT_NEAR(sum, seconds.at("mean").get<double>(), 1e-9);
    EXPECT_NEAR(report.at("samples_per_second").get<double>(), 64 / 0.15, 1e-6);
    EXPECT_NEAR(report.at("comm").at("overlap_ratio").get<double>(), 0.25, 1e-9);
    // 1 MB in 0.05 s, factor 2 (n - 1) / n = 1.
    EXPECT_NEAR(report.at("comm").at("busbw_GBps").get<double>(), 0.02, 1e-9);
  });
}

TEST(RunReport, RunWithoutStepsHasNoRates) {
  comm::run_ranks(1, [](comm::Group& group) {
    const auto report =
        make_run_report(group, {"p", "c", "m", "d", 1, 8, 1, 0}, {0, 0, std::nullopt, 0, {}}, {});
    EXPECT_TRUE(report.at("samples_per_second").is_null());
    EXPECT_TRUE(report.at("comm").at("overlap_ratio").is_null());
    EXPECT_TRUE(report.at("final").at("eval_loss").is_null());
  });
}

TEST(RunReport, NodesAreCountedByTheirNames) {
  comm::run_ranks(3, [](comm::Group& group) { EXPECT_EQ(count_nodes(group), 1); });
}

TEST(RunReport, FilesAreWrittenIntoANewDirectory) {
  const ddp::test::TemporaryDirectory temporary;
  const auto directory = temporary.path() / "a" / "b";
  write_run_files(directory, {{"steps", 1}}, {{1, 0, 0.5, 0.1, 0.01}}, "{}");
  for (const char* file : {"run.json", "steps.csv", "trace.json"}) {
    EXPECT_TRUE(std::filesystem::exists(directory / file)) << file;
  }
}

// ---- a report that is updated while the run is in progress

namespace fs = std::filesystem;

class KeptReport : public testing::Test {
 protected:
  // A process of a run: its range of steps, and its end.
  struct Process {
    std::int64_t first_step = 0;
    std::int64_t steps = 0;
    double interval = 1e9;
    // Called on each rank after the last step, with the rows up to that step.
    std::function<void(RunReporter&, const RunOutcome&)> end = [](RunReporter&, const auto&) {};
  };

  static void step(profile::StepRecorder& recorder, bool late) {
    recorder.begin_step();
    const auto begin = profile::Clock::now();
    const auto ready = begin + std::chrono::microseconds(late ? 7000 : 2000);
    const auto sent = begin + std::chrono::microseconds(8000);
    recorder.add(profile::Phase::backward, {begin, ready});
    recorder.add(profile::Phase::exposed_comm, {ready, sent});
    recorder.add_communication({{"bucket", 1000000, {ready, sent}}}, {begin, ready});
    std::this_thread::sleep_until(sent);
    recorder.end_step();
  }

  // Rank 1 of two is late in each step.
  void run(const Process& process) {
    comm::run_ranks(2, [&](comm::Group& group) {
      profile::StepRecorder recorder;
      RunFacts facts{"ddp-train x",
                     "ddp-train",
                     "mlp",
                     "digits",
                     10,
                     64,
                     2,
                     0,
                     3,
                     nlohmann::json::object({{"precision", "fp32"}})};
      facts.sharding = sharding_of_report({}, std::nullopt);
      RunReporter reporter(group, std::move(facts),
                           {directory_, process.first_step, process.interval}, recorder, true);
      RunOutcome outcome;
      for (outcome.steps = 1; outcome.steps <= process.steps; ++outcome.steps) {
        step(recorder, group.rank() == 1);
        const bool due = reporter.after_step();
        const StepLoss row{process.first_step + outcome.steps, 0, 0.5, 0.1, 0.08};
        reporter.add_rows({&row, 1});
        if (due) reporter.update(outcome);
      }
      outcome.steps = process.steps;
      process.end(reporter, outcome);
    });
  }

  static void finish(RunReporter& reporter, const RunOutcome& outcome) {
    reporter.finish(outcome, RunReporter::Ending::finished, "");
  }

  nlohmann::json report() const {
    return nlohmann::json::parse(std::ifstream(directory_ / "run.json"));
  }

  // The first column of steps.csv.
  std::vector<std::string> rows() const {
    std::ifstream file(directory_ / "steps.csv");
    std::vector<std::string> steps;
    for (std::string line; std::getline(file, line);) {
      steps.push_back(line.substr(0, line.find(',')));
    }
    return steps;
  }

  static std::vector<std::string> numbers(int last) {
    std::vector<std::string> texts{"step"};
    for (int i = 1; i <= last; ++i) texts.push_back(std::to_string(i));
    return texts;
  }

  ddp::test::TemporaryDirectory temporary_;
  fs::path directory_ = temporary_.path() / "report";
};

TEST_F(KeptReport, TraceHasTheLastStepsOfAllRanks) {
  run({.steps = 25, .end = finish});
  const auto trace = nlohmann::json::parse(std::ifstream(directory_ / "trace.json"));
  EXPECT_EQ(trace["otherData"]["clocks"], "one");
  std::map<int, std::vector<double>> ends;  // of collectives, by rank
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] != "bucket") continue;
    ends[event["pid"]].push_back(event["ts"].get<double>() + event["dur"].get<double>());
  }
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(ends.at(0).size(), profile::StepRecorder::kTracedSteps);
  EXPECT_EQ(ends.at(1).size(), profile::StepRecorder::kTracedSteps);
}

TEST(TraceGather, TakesSomeOfManyRanks) {
  constexpr int kRanks = 70;
  std::string trace;
  comm::run_ranks(kRanks, [&](comm::Group& group) {
    profile::StepRecorder recorder;
    recorder.begin_step();
    const auto now = profile::Clock::now();
    recorder.add(profile::Phase::forward, {now, now});
    recorder.end_step();
    auto ranks = nlohmann::json::array();
    for (int rank = 0; group.rank() == 0 && rank < kRanks; ++rank) {
      ranks.push_back({{"node", "n" + std::to_string(rank / 2)},
                       {"step_seconds", {{"waiting", rank == 65 ? 0.1 : 0.5}}}});
    }
    auto gathered = gather_trace(group, recorder, ranks, "n" + std::to_string(group.rank() / 2));
    EXPECT_EQ(gathered.empty(), group.rank() != 0);
    if (group.rank() == 0) trace = std::move(gathered);
  });
  std::set<int> traced;
  const auto parsed = nlohmann::json::parse(trace);
  for (const auto& event : parsed["traceEvents"]) {
    if (event["ph"] == "X") traced.insert(event["pid"].get<int>());
  }
  EXPECT_TRUE(traced.contains(65)) << "the rank that waits least";
  EXPECT_GE(traced.size(), 35U) << "one of each node";
  EXPECT_LE(traced.size(), kMaxTracedRanks);
}

TEST_F(KeptReport, SeparatesWaitingFromTheWireAndShowsTheLateRank) {
  run({.steps = 25, .end = finish});
  const auto written = report();
  const auto& ranks = written.at("ranks");
  EXPECT_NEAR(ranks[0].at("step_seconds").at("waiting").get<double>(), 0.005, 1e-6);
  EXPECT_NEAR(ranks[1].at("step_seconds").at("waiting").get<double>(), 0, 1e-6);
  EXPECT_NEAR(written.at("step_seconds").at("waiting").get<double>(), 0.0025, 1e-6);
  EXPECT_NEAR(written.at("step_seconds").at("exposed_comm").get<double>(), 0.0035, 1e-6)
      << "must be the total, including the waiting";
  EXPECT_EQ(ranks[0].at("late_share"), 0);
  EXPECT_EQ(ranks[1].at("late_share"), 1);
  EXPECT_EQ(ranks[1].at("compared_steps"), 20);
  // 1 MB in 1 ms, factor 1: the rate that the late rank sees.
  EXPECT_NEAR(written.at("comm").at("busbw_GBps").get<double>(), 1.0, 1e-3);
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.at("local_ranks"), 2);
    EXPECT_GT(rank.at("cpus").get<int>(), 0);
    EXPECT_FALSE(rank.at("cpu_list").get<std::string>().empty());
    EXPECT_EQ(rank.at("threads"), 3);
    EXPECT_TRUE(rank.at("involuntary_switches_per_second").is_number());
  }
  EXPECT_EQ(written.at("outcome"), "finished");
}

// The device gives the times of a step three steps later: a forward pass of 1 s in a step of 2 s.
struct LateDevice final : profile::DeviceTimer {
  void begin_step(bool) override {}
  void end(profile::Phase) noexcept override {}
  void end_step() override { ++ended; }
  std::vector<profile::DeviceStep> take_completed() override {
    std::vector<profile::DeviceStep> steps;
    const profile::Clock::time_point t(std::chrono::seconds(1000));
    const auto second = std::chrono::seconds(1);
    for (; gives && completed + lag < ended; ++completed) {
      steps.push_back({{t, t + 2 * second}, {{profile::Phase::forward, {t, t + second}}}, {}});
      if (!reduces) continue;
      const profile::Interval reduction{t + second, t + second + std::chrono::milliseconds(wait)};
      steps.back().parts.push_back({profile::Phase::exposed_comm, reduction});
      steps.back().communication.push_back({"bucket", 1000, reduction});
    }
    return steps;
  }

  bool gives = true;
  bool reduces = false;
  int wait = 100;  // milliseconds that the reduction takes on this rank
  int lag = 3;
  int ended = 0;
  int completed = 0;
};

// Makes steps, after which the device gives all times; returns the report.
nlohmann::json report_of(comm::Group& group, LateDevice& device, const fs::path& directory,
                         int steps) {
  profile::StepRecorder recorder;
  recorder.time_on(&device);
  RunReporter reporter(group, {"ddp-train x", "ddp-train", "mlp", "digits", 10, 64, 2, 0, 3, {}},
                       {directory, 0, 1e9}, recorder, true);
  for (int i = 0; i < steps; ++i) {
    recorder.begin_step();
    recorder.end_step();
    reporter.after_step();
  }
  device.lag = 0;
  recorder.collect();
  RunOutcome outcome;
  outcome.steps = steps;
  return reporter.finish(outcome, RunReporter::Ending::finished, "");
}

nlohmann::json report_of_steps(LateDevice& device, int steps) {
  nlohmann::json report;
  comm::run_ranks(1, [&](comm::Group& group) { report = report_of(group, device, {}, steps); });
  return report;
}

TEST(ReportOfADevice, SumsTheTimesOfTheDevice) {
  LateDevice device;
  const auto report = report_of_steps(device, 30);
  EXPECT_NEAR(report.at("step_seconds").at("mean").get<double>(), 2, 1e-9);
  EXPECT_NEAR(report.at("step_seconds").at("forward").get<double>(), 1, 1e-9);
}

// Rank 1 of two is late in each step, so the other one waits for it. `lag`: of rank 1's device.
nlohmann::json report_of_two_ranks(const fs::path& directory, int steps, int lag) {
  nlohmann::json report;
  comm::run_ranks(2, [&](comm::Group& group) {
    LateDevice device;
    device.reduces = true;
    device.wait = group.rank() == 0 ? 600 : 100;
    if (group.rank() == 1) device.lag = lag;
    const auto written = report_of(group, device, directory, steps);
    if (group.rank() == 0) report = written;
  });
  return report;
}

TEST_F(KeptReport, ComparesTheWaitsOfRanksOnDevices) {
  for (const int steps : {3, 12, 40}) {
    const auto written = report_of_two_ranks(directory_ / std::to_string(steps), steps, 5);
    const auto& ranks = written.at("ranks");
    if (steps < 6) continue;  // all are left out as untypical: nothing must hang
    EXPECT_NEAR(ranks[0].at("step_seconds").at("waiting").get<double>(), 0.5, 1e-6) << steps;
    EXPECT_NEAR(ranks[1].at("step_seconds").at("waiting").get<double>(), 0, 1e-6) << steps;
    EXPECT_EQ(ranks[1].at("late_share"), 1) << steps;
    EXPECT_EQ(ranks[1].at("compared_steps"), steps - 5) << steps;
  }
}

// A step without times on one rank is compared on no rank.
TEST_F(KeptReport, DoesNotCompareStepsThatADeviceGivesTooLate) {
  const auto written = report_of_two_ranks(directory_, 40, 30);
  for (const auto& rank : written.at("ranks")) {
    EXPECT_LT(rank.at("compared_steps").get<int>(), 10);
  }
}

TEST(ReportOfADevice, DoesNotNeedTheTimesOfADeviceThatGivesNone) {
  LateDevice device;
  device.gives = false;
  const auto report = report_of_steps(device, 5000);
  EXPECT_LT(report.at("step_seconds").at("mean").get<double>(), 1);
  EXPECT_EQ(report.at("steps"), 5000);
}

TEST_F(KeptReport, WallTimePartsSumToTheTotal) {
  run({.steps = 12, .end = [](RunReporter& reporter, const RunOutcome& outcome) {
         { const auto span = reporter.measure(RunReporter::WallPart::evaluation); }
         finish(reporter, outcome);
       }});
  const auto wall = report().at("wall_seconds");
  double sum = 0;
  for (const char* part : {"startup", "steps", "evaluation", "checkpoint", "rest"}) {
    sum += wall.at(part).get<double>();
  }
  EXPECT_NEAR(sum, wall.at("total").get<double>(), 1e-9);
  EXPECT_GT(wall.at("startup").get<double>(), 0);
  EXPECT_GT(wall.at("evaluation").get<double>(), 0);
}

// As after SIGKILL, nothing is called after the last step.
TEST_F(KeptReport, KilledRunKeepsItsLastReport) {
  run({.steps = 40, .interval = 1e-9});
  const auto written = report();
  EXPECT_EQ(written.at("outcome"), "running");
  EXPECT_EQ(written.at("steps"), 40);
  EXPECT_TRUE(written.at("parameters_crc32c").is_null());
  EXPECT_EQ(written.at("ranks").size(), 2U);
  EXPECT_EQ(rows(), numbers(40));
}

TEST_F(KeptReport, FailedRunReportsTheReasonWithoutOtherRanks) {
  run({.steps = 7, .end = [](RunReporter& reporter, const RunOutcome& outcome) {
         reporter.failed(outcome, "rank 1 was lost");
       }});
  const auto written = report();
  EXPECT_EQ(written.at("outcome"), "failed");
  EXPECT_EQ(written.at("outcome_reason"), "rank 1 was lost");
  EXPECT_EQ(written.at("world_size"), 2);
  EXPECT_EQ(written.at("steps"), 7);
  EXPECT_EQ(written.at("ranks").size(), 1U) << "only rank 0 could still report";
  EXPECT_EQ(rows(), numbers(7));
}

TEST_F(KeptReport, ACompleteRunIsNoFailureIfItsReportCannotBeWritten) {
  run({.steps = 7, .end = [&](RunReporter& reporter, const RunOutcome& outcome) {
         std::filesystem::create_directories(directory_ / "trace.json" / "in the way");
         const auto report = reporter.finish(outcome, RunReporter::Ending::finished, "");
         EXPECT_TRUE(report.is_null() || report.at("steps") == 7);
         EXPECT_EQ(reporter.file(), "");
       }});
  EXPECT_EQ(rows(), numbers(7));
}

TEST_F(KeptReport, ResumedRunKeepsEarlierRowsAndReportsItsSteps) {
  run({.steps = 20, .end = [](RunReporter& reporter, const RunOutcome& outcome) {
         reporter.finish(outcome, RunReporter::Ending::interrupted, "SIGTERM");
       }});
  EXPECT_EQ(report().at("outcome"), "interrupted");
  EXPECT_EQ(report().at("outcome_reason"), "SIGTERM");
  // Killed in the middle of a row, after the checkpoint of step 18.
  std::ofstream(directory_ / "steps.csv", std::ios::app) << "21,0,0.4";
  run({.first_step = 18, .steps = 7, .end = finish});
  EXPECT_EQ(rows(), numbers(25));
  const auto written = report();
  EXPECT_EQ(written.at("steps"), 7) << "must count the steps of this process only";
  const auto& covers = written.at("covers");
  EXPECT_EQ(covers.at("first_step"), 19);
  EXPECT_EQ(covers.at("last_step"), 25);
  EXPECT_EQ(covers.at("rows_missing"), 0);
  ASSERT_EQ(covers.at("earlier").size(), 1U);
  EXPECT_EQ(covers.at("earlier")[0].at("last_step"), 20);
  EXPECT_EQ(covers.at("earlier")[0].at("outcome"), "interrupted");
}

// Sets a variable until it goes out of scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST_F(KeptReport, RowsSayWhichGenerationMadeThemAndARepeatedStepReplaces) {
  const auto generations = [this] {
    std::ifstream file(directory_ / "steps.csv");
    std::vector<std::string> ends;
    for (std::string line; std::getline(file, line);) {
      ends.push_back(line.substr(line.rfind(',', line.rfind(',') - 1) + 1));
    }
    return ends;
  };
  run({.steps = 3, .end = finish});
  EXPECT_EQ(generations(), (std::vector<std::string>{"generation,ranks", "1,2", "1,2", "1,2"}));
  {
    const Variable started_again("DDP_RUN_GENERATION", "4");
    run({.first_step = 2, .steps = 2, .end = finish});
  }
  EXPECT_EQ(rows(), numbers(4));
  EXPECT_EQ(generations(),
            (std::vector<std::string>{"generation,ranks", "1,2", "1,2", "4,2", "4,2"}));
  // A job that is requeued counts from 1 again.
  const Variable first("DDP_RUN_GENERATION", "1");
  run({.first_step = 3, .steps = 1, .end = finish});
  EXPECT_EQ(generations(),
            (std::vector<std::string>{"generation,ranks", "1,2", "1,2", "4,2", "5,2"}));
}

TEST_F(KeptReport, WhatIsKeptSurvivesTheProcess) {
  run({.steps = 7, .end = [](RunReporter& reporter, const RunOutcome&) { reporter.keep_rows(); }});
  EXPECT_EQ(rows(), numbers(7));
}

TEST_F(KeptReport, CarriesOverWhatDdpRunHasWritten) {
  const auto add_section = [this] {
    auto written = report();
    written["resilience"] = {{"ettr", 0.5}};
    std::ofstream(directory_ / "run.json") << written;
  };
  run({.steps = 3, .end = finish});
  add_section();
  run({.first_step = 3, .steps = 2, .end = finish});
  EXPECT_EQ(report().at("resilience").at("ettr"), 0.5) << "it resumes";
  {
    const Variable started_again("DDP_RUN_GENERATION", "2");
    run({.steps = 2, .end = finish});
    EXPECT_EQ(report().at("resilience").at("ettr"), 0.5) << "ddp-run has started it again";
  }
  run({.steps = 2, .end = finish});
  EXPECT_FALSE(report().contains("resilience")) << "another run";
}

TEST_F(KeptReport, LostRowsAreCountedAsMissing) {
  run({.first_step = 10, .steps = 2, .end = finish});
  EXPECT_EQ(rows(), (std::vector<std::string>{"step", "11", "12"}));
  EXPECT_EQ(report().at("covers").at("rows_missing"), 10);
}

TEST_F(KeptReport, NewRunReplacesOldFiles) {
  run({.steps = 9, .end = finish});
  run({.steps = 3, .end = finish});
  EXPECT_EQ(rows(), numbers(3));
  EXPECT_TRUE(report().at("covers").at("earlier").empty());
}

TEST_F(KeptReport, ProcessThatOnlyEvaluatesCompletesTheReport) {
  run({.steps = 9, .end = [](RunReporter& reporter, const RunOutcome& outcome) {
         reporter.finish(outcome, RunReporter::Ending::interrupted, "SIGTERM");
       }});
  const auto ends = [](RunReporter::Ending ending, bool unfinished) {
    return [=](RunReporter& reporter, RunOutcome outcome) {
      EXPECT_EQ(reporter.lacks_ending(), unfinished);
      outcome.evaluation = Evaluation{0.4, 0.9, 100};
      outcome.parameters_crc32c = 0x1234;
      reporter.finish(outcome, ending, "");
    };
  };
  run({.first_step = 9, .end = ends(RunReporter::Ending::interrupted, true)});
  EXPECT_EQ(report().at("outcome"), "interrupted");
  run({.first_step = 9, .end = ends(RunReporter::Ending::finished, true)});
  const auto ended = report();
  EXPECT_EQ(ended.at("outcome"), "finished");
  EXPECT_EQ(ended.at("final").at("eval_loss"), 0.4);
  EXPECT_EQ(ended.at("steps"), 9);
  run({.first_step = 9, .end = ends(RunReporter::Ending::finished, false)});
}

TEST_F(KeptReport, LacksItsEndingIfThereIsNone) {
  const auto file = directory_ / "run.json";
  run({.first_step = 9, .end = [&](RunReporter& reporter, const RunOutcome& outcome) {
         EXPECT_TRUE(reporter.lacks_ending());
         reporter.update_with_save(outcome);
         reporter.update_if_old(outcome);
         EXPECT_FALSE(fs::exists(file)) << "this process has trained nothing";
         finish(reporter, outcome);
       }});
  EXPECT_EQ(report().at("outcome"), "finished");
  EXPECT_EQ(report().at("steps"), 0);
}

// Evaluations may take most of the time, so that few steps look at the clock.
TEST_F(KeptReport, IsUpdatedBetweenStepsIfItIsOld) {
  std::atomic<int> written = 0;
  for (const bool old : {false, true}) {
    run({.steps = 2, .interval = old ? 1e-9 : 1e9, .end = [&](RunReporter& reporter, auto& now) {
           reporter.update_if_old(now);
           const auto file = reporter.file();  // of rank 0
           if (file.empty()) return reporter.update_if_old(now);
           ++written;
           EXPECT_EQ(report().at("outcome"), "running") << "the first one of a process is due";
           fs::remove(file);
           reporter.update_if_old(now);
           EXPECT_EQ(fs::exists(file), old);
         }});
  }
  EXPECT_EQ(written, 2);
}

TEST_F(KeptReport, FinishedRunStartedAgainKeepsItsReport) {
  const auto text = [this](const char* file) {
    std::ostringstream contents;
    contents << std::ifstream(directory_ / file).rdbuf();
    return contents.str();
  };
  run({.steps = 9, .end = finish});
  const auto before = text("run.json") + text("steps.csv") + text("trace.json");
  run({.first_step = 9, .steps = 0, .end = [](RunReporter& reporter, const RunOutcome& outcome) {
         finish(reporter, outcome);
         EXPECT_TRUE(reporter.file().empty());
       }});
  EXPECT_EQ(text("run.json") + text("steps.csv") + text("trace.json"), before);
}

TEST_F(KeptReport, IsWrittenAgainWhenItsDirectoryIsBack) {
  std::once_flag once;
  run({.steps = 7, .end = [&](RunReporter& reporter, const RunOutcome& outcome) {
         reporter.keep_rows();
         std::call_once(once, [this] {
           while (!fs::exists(directory_ / "steps.csv")) std::this_thread::yield();
           fs::remove_all(directory_);
         });
         const StepLoss row{8, 0, 0.5, 0.1, 0.08};
         reporter.add_rows({&row, 1});
         reporter.keep_rows();
         finish(reporter, outcome);
       }});
  EXPECT_EQ(rows(), numbers(8));
  EXPECT_EQ(report().at("outcome"), "finished");
}

TEST_F(KeptReport, RowsThatCannotBeWrittenStopNeitherTheRunNorItsReport) {
  fs::create_directories(directory_ / "steps.csv");
  run({.steps = 20, .interval = 1e-9, .end = finish});
  EXPECT_EQ(report().at("outcome"), "finished");
}

// ---- the table of keys in docs/report.md

std::set<std::string> documented_keys() {
  std::ifstream page(SLURM_DDP_SOURCE_DIR "/docs/report.md");
  const std::regex key("`([A-Za-z0-9_.\\[\\]]+)`");
  std::set<std::string> keys;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("#")) inside = line == "### run.json";
    if (!inside || !line.starts_with("| `")) continue;
    const auto cell = line.substr(0, line.find('|', 1));
    for (std::sregex_iterator at(cell.begin(), cell.end(), key), end; at != end; ++at) {
      keys.insert((*at)[1]);
    }
  }
  return keys;
}

// Stops at objects that the table explains as a whole.
void add_keys(const nlohmann::json& value, const std::string& path,
              const std::set<std::string>& documented, std::set<std::string>& keys) {
  if (value.is_primitive() || documented.contains(path)) {
    keys.insert(path);
  } else if (value.is_array() && !value.empty()) {
    add_keys(value.front(), path + "[]", documented, keys);
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      add_keys(inner, path.empty() ? key : path + "." + key, documented, keys);
    }
  }
}

TEST_F(KeptReport, TableListsExactlyTheKeys) {
  run({.steps = 25, .end = finish});
  const auto documented = documented_keys();
  // Only with --staleness, with --local-steps, with --graph, with metrics of the program, with
  // --checkpoint-memory, and under ddp-run.
  std::set<std::string> keys{"staleness",   "largest_lead", "mean_lead",          "graph",
                             "graph_steps", "local_steps",  "final.eval_metrics", "memory_copies",
                             "resilience"};
  ASSERT_TRUE(report().contains("sharding"));
  add_keys(report(), "", documented, keys);
  const auto plan = plan_stages({.ranks = 2}, {{"first", 1}, {"second", 1}});
  const nlohmann::json staged = {
      {"pipeline", pipeline_of_report(plan, 4, {{1, 1}, {1, 1}, {0, 0}})}};
  add_keys(staged, "", documented, keys);
  EXPECT_EQ(keys, documented);
}

}  // namespace
}  // namespace ddp::train
