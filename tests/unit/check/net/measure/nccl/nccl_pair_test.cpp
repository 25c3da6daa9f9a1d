// SPDX-License-Identifier: Apache-2.0
// Tests NCCL between two GPUs with a fake of NCCL and of the CUDA driver. None of these tests uses
// a real GPU.
#include "ddp_runtime/check/net/measure/nccl/nccl_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <map>
#include <string>
#include <thread>

#include "ddp_runtime/check/net/device_plan.h"
#include "ddp_runtime/check/net/measure/nccl/gpu_transfer.h"
#include "ddp_runtime/check/net/measure/nccl/nccl_end.h"
#include "tests/unit/error_of.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kEndsTimeout{300};  // long enough not to expire

// Sets the scenario of the fakes until the end of the test.
class FakeTold {
 public:
  explicit FakeTold(const char* words) {
    for (const char* variable : kVariables) setenv(variable, words, 1);
  }
  FakeTold(const FakeTold&) = delete;
  FakeTold& operator=(const FakeTold&) = delete;
  ~FakeTold() {
    for (const char* variable : kVariables) unsetenv(variable);
  }

 private:
  static constexpr const char* kVariables[] = {"FAKE_NCCL", "FAKE_CUDA"};
};

NcclEnd end_on(std::uint16_t port, bool first) {
  NcclEnd end;
  end.nccl_library = end.cuda_library = SLURM_DDP_FAKE_NCCL;
  end.host = first ? "127.0.0.1" : "";
  end.port = port;
  end.exchange = 7;
  end.token = std::string(32, '7');
  end.bytes = 1 << 20;
  return end;
}

std::uint16_t port_of_nobody() {
  return listen_on(0).port;
}

struct BothEnds {
  ExchangeResult first;
  ExchangeResult second;
};

BothEnds measured_ends(const Faults& faults_of_second = {}) {
  const std::uint16_t port = port_of_nobody();
  auto second = std::async(std::launch::async, [&] {
    NcclEnd end = end_on(port, false);
    end.faults = faults_of_second;
    return measure_by_nccl(end, Clock::now() + kEndsTimeout);
  });
  const auto first = measure_by_nccl(end_on(port, true), Clock::now() + kEndsTimeout);
  return {first, second.get()};
}

TEST(NcclEnds, MeasureBothDirectionsAndTheLatency) {
  const auto [first, second] = measured_ends();
  for (const auto& end : {first, second}) {
    EXPECT_GT(end.received_per_second, 0);
    EXPECT_GT(end.sent_per_second, 0);
    EXPECT_GT(end.latency_seconds, 0);
    EXPECT_EQ(end.wrong_bytes, 0);
  }
}

TEST(NcclEnds, ConnectingEndMayBeEarly) {
  const std::uint16_t port = port_of_nobody();
  auto first = std::async(std::launch::async, [port] {
    return measure_by_nccl(end_on(port, true), Clock::now() + kEndsTimeout);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  measure_by_nccl(end_on(port, false), Clock::now() + kEndsTimeout);
  EXPECT_GT(first.get().received_per_second, 0);
  EXPECT_THAT(error_of([port] {
                measure_by_nccl(end_on(port, true), Clock::now() + std::chrono::milliseconds(300));
              }),
              HasSubstr("refused"));
}

// Other programs can make any exchange slow, but none fast.
TEST(NcclEnds, ThrottledEndIsSlow) {
  Faults slow;
  slow.speed = 0.02;
  const double held_back = measured_ends(slow).first.received_per_second;
  double fastest = 0;
  for (int attempt = 0; attempt < 100 && fastest < 3 * held_back; ++attempt) {
    fastest = std::max(fastest, measured_ends().first.received_per_second);
  }
  EXPECT_LT(held_back, fastest / 3);
}

TEST(NcclEnds, CorruptBytesAreCountedWhereTheyArrive) {
  Faults corrupt;
  corrupt.corrupt = true;
  const auto [first, second] = measured_ends(corrupt);
  EXPECT_EQ(first.wrong_bytes, 0);
  EXPECT_EQ(second.wrong_bytes, 1);
  const FakeTold fake("wrong=1");
  EXPECT_GT(measured_ends().first.wrong_bytes, 0);
}

// The speed is so low that the warm-up fills a whole piece. The check must use only data that
// arrives after the warm-up.
TEST(NcclEnds, MissingDataIsNotReplacedByTheWarmUp) {
  const FakeTold fake("dry=1");
  Faults slow;
  slow.speed = 1e-4;
  const auto [first, second] = measured_ends(slow);
  EXPECT_GT(second.wrong_bytes, 0);
}

TEST(GpuTransfer, LastsAFifthOfASecondInPiecesThatFitIntoMemory) {
  constexpr std::size_t kOneMiB = std::size_t{1} << 20;
  const auto planned = [](std::size_t most, double per_second) {
    const GpuTransfer transfer = plan_transfer(most, per_second);
    EXPECT_NO_THROW(require_possible(transfer, most));
    return std::pair(transfer.bytes, transfer.pieces);
  };
  using Planned = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(planned(32 * kOneMiB, 3.2 * 1024 * kOneMiB), Planned(32 * kOneMiB, 20));
  EXPECT_EQ(planned(32 * kOneMiB, 1e300), Planned(32 * kOneMiB, 64));
  EXPECT_EQ(planned(32 * kOneMiB, 8e6), Planned(1'000'000, 8));
  EXPECT_EQ(planned(32 * kOneMiB, 1), Planned(4096, 8));
  EXPECT_EQ(planned(1, 1e9), Planned(1, 64));
}

TEST(GpuTransfer, ImpossibleAnnouncementsAreRejected) {
  for (const double speed : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(plan_transfer(1024, speed), RuntimeError) << speed;
  }
  for (const GpuTransfer& transfer :
       {GpuTransfer{0, 8}, GpuTransfer{1025, 8}, GpuTransfer{1024, 7}, GpuTransfer{1024, 65}}) {
    EXPECT_THROW(require_possible(transfer, 1024), RuntimeError)
        << transfer.bytes << " times " << transfer.pieces;
  }
}

TEST(NcclEnds, ReportTheErrorsOfTheLibraries) {
  const std::pair<const char*, const char*> cases[] = {
      {"init=100", "CUDA cannot start: fake trouble (100)"},
      {"gpus=0", "CUDA cannot find a GPU: fake trouble (101)"},
      {"connect=2", "NCCL cannot connect the two GPUs: fake NCCL trouble"},
      // The stream never completes, and only NCCL's own threads know the reason.
      {"later=6 busy=1", "NCCL cannot transfer data: fake NCCL trouble"}};
  for (const auto& [scenario, error] : cases) {
    const FakeTold fake(scenario);
    EXPECT_EQ(error_of([] { measured_ends(); }), error);
  }
  NcclEnd end = end_on(port_of_nobody(), false);
  end.cuda_library = "libno-such-driver.so.1";
  EXPECT_THAT(error_of([&] { measure_by_nccl(end, Clock::now() + kEndsTimeout); }),
              HasSubstr("libno-such-driver.so.1: cannot open shared object file"));
}

TEST(NcclSurvey, CountsGpusAndNamesTheVersion) {
  EXPECT_EQ(survey_nccl(SLURM_DDP_FAKE_NCCL, SLURM_DDP_FAKE_NCCL),
            nlohmann::json::parse(R"({"gpus": 2, "version": "2.18.3", "problem": ""})"));
  const auto without = survey_nccl("libno-nccl.so", SLURM_DDP_FAKE_NCCL);
  EXPECT_EQ(without.at("gpus"), 2);
  EXPECT_EQ(without.at("version"), "");
  EXPECT_THAT(without.at("problem").get<std::string>(), HasSubstr("libno-nccl.so"));
}

TEST(NcclSurvey, VersionsBefore2_9AreDecodedDifferently) {
  const FakeTold fake("version=2804");
  EXPECT_EQ(survey_nccl(SLURM_DDP_FAKE_NCCL, SLURM_DDP_FAKE_NCCL).at("version"), "2.8.4");
}

TEST(NcclSurvey, FailedProcessIsReported) {
  NcclTool tool;
  tool.program = "/bin/false";
  tool.cuda_library = "somewhere/libcuda.so";
  EXPECT_EQ(find_nccl(tool, kEndsTimeout).problem, "NCCL failed: it printed nothing");
  tool.program = "/bin/echo";  // prints something else
  EXPECT_THAT(find_nccl(tool, kEndsTimeout).problem, HasSubstr("NCCL failed: nccl-end --nccl"));
}

TEST(NcclResult, IsTheLastResultLine) {
  const nlohmann::json value{{"gpus", 1}};
  EXPECT_EQ(parse_nccl_result("noise" + nccl_result_line({{"gpus", 0}}) + "noise" +
                              nccl_result_line(value) + "noise"),
            value);
  for (const char* output : {"", "nccl-end result: ", "nccl-end result: {", "nccl-end result: 7",
                             "nccl-end result: [1]"}) {
    EXPECT_EQ(parse_nccl_result(output), std::nullopt) << output;
  }
}

// Lines as written by NCCL 2.8, 2.18 and its plugins for other networks.
TEST(NcclTransport, IsReadFromTheLog) {
  EXPECT_EQ(nccl_transport("h:1:2 [0] NCCL INFO Channel 01 : 2[c7000] -> 0[87000] [receive] via "
                           "NET/IB/5/GDRDMA\n"),
            "NET/IB/5/GDRDMA");
  EXPECT_EQ(nccl_transport("h:984:1257 [4] NCCL INFO Channel 06/0 : 36[4] -> 20[4] [send] via "
                           "NET/IBext_v8/3 comm 0x55 nRanks 02\nanother via NET/Socket/0"),
            "NET/IBext_v8/3");
  EXPECT_EQ(nccl_transport("NCCL INFO Connected via thread\nanything via NET/IB/0\n"), "");
}

TEST(NcclCommand, PassesTheHostToTheConnectingEnd) {
  NcclTool tool;
  tool.program = "ddp-check";
  ExchangeCommand command;
  command.exchange = 5000;
  command.bytes = 1024;
  command.limit_ms = 9000;
  command.first = true;
  command.host = "n2";
  Faults faults;
  faults.speed = 0.5;
  faults.corrupt = true;
  EXPECT_EQ(nccl_end_command(tool, command, faults),
            (std::vector<std::string>{"ddp-check", "nccl-end", "--nccl", "libnccl.so.2", "--cuda",
                                      "libcuda.so.1", "--port", "23604", "--exchange", "5000",
                                      "--bytes", "1024", "--limit-ms", "9000", "--host", "n2",
                                      "--slow", "0.5", "--corrupt"}));
  command.first = false;
  EXPECT_EQ(nccl_end_command(tool, command, {}).back(), "9000");
}

Hello task_with_gpus(const std::string& node, int gpus, const std::string& version,
                     const std::string& problem = "") {
  Hello hello;
  hello.node = node;
  hello.gpus = gpus;
  hello.nccl_version = version;
  hello.nccl_problem = problem;
  return hello;
}

std::string plan_text(const DevicePlan& plan) {
  std::string text = std::to_string(plan.nodes);
  for (const auto& finding : plan.findings) {
    text += ", " + finding.check + " " + finding.node + " " + finding.device + "=" +
            std::string(name_of(finding.severity)) + " " + finding.evidence;
  }
  return text;
}

TEST(NcclPlan, GpusAreMeasuredWherePresentAndReportedWhereMissing) {
  std::map<int, Hello> present{{0, task_with_gpus("n1", 0, "")}, {1, task_with_gpus("n2", 0, "")}};
  EXPECT_EQ(plan_text(plan_nccl(present, Severity::unknown)), "0");
  present = {{0, task_with_gpus("n1", 4, "2.18.3")},
             {1, task_with_gpus("n2", 4, "2.18.3")},
             {2, task_with_gpus("n3", 0, "")},
             {3, task_with_gpus("n4", 4, "", "no NCCL")},
             {4, task_with_gpus("n5", 0, "", "the driver hangs")}};
  EXPECT_EQ(plan_text(plan_nccl(present, Severity::unknown)),
            "2, nccl.gpu n3 =CRITICAL , nccl.library n4 4 GPUs=UNKNOWN no NCCL, nccl.library n5 0 "
            "GPUs=UNKNOWN the driver hangs");
}

TEST(NcclPlan, MissingLibraryIsOnlyNotedButGpusThatDoNotAnswerAreUnknown) {
  const std::map<int, Hello> present{{0, task_with_gpus("n1", 4, "2.18.3")},
                                     {1, task_with_gpus("n2", 4, "", "no NCCL")},
                                     {2, task_with_gpus("n3", 0, "", "the driver hangs")}};
  const auto plan = plan_nccl(present, Severity::ok);
  EXPECT_EQ(
      plan_text(plan),
      "1, nccl.library n2 4 GPUs=OK no NCCL, nccl.library n3 0 GPUs=UNKNOWN the driver hangs");
  EXPECT_EQ(plan.notes, (std::vector<std::string>{
                            "NCCL was not tested on n2: no NCCL; load the module that provides "
                            "NCCL, set its path with --nccl, or skip it with --no-nccl",
                            "NCCL was not tested on n1: no other node can be measured with it"}));
}

}  // namespace
}  // namespace ddp::check
