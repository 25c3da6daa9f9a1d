// SPDX-License-Identifier: Apache-2.0
// A valid run.json, and every possible error in one.
#include "ddp_runtime/report/record/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "ddp_runtime/report/record/error.h"
#include "tests/unit/error_of.h"
#include "tests/unit/report/sample_runs.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::report {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::vector<double> kParts{0.01, 0.02, 0.04, 0.01, 0.01, 0.005, 0.005};

json good() {
  return test::run_json(2, 64, kParts);
}

std::string complaint_about(const std::string& text) {
  return error_of([&] { parse_run(text, "a/run.json"); });
}

std::string complaint(const json& run) {
  return complaint_about(run.dump());
}

TEST(RunRecord, EveryFigureIsRead) {
  const RunRecord run = test::run_of(good(), "dir");
  EXPECT_EQ(run.source, "dir");
  EXPECT_EQ(run.program, "ddp-train 0.1.0");
  EXPECT_EQ(run.command, "ddp-train --model mlp");
  EXPECT_EQ(run.started_unix, 1700000000.0);
  EXPECT_EQ(run.world_size, 2);
  EXPECT_EQ(run.nodes, 1);
  EXPECT_EQ(run.backend, "mpi");
  EXPECT_EQ(run.device, "cpu");
  EXPECT_EQ(run.model, "mlp");
  EXPECT_EQ(run.data, "digits");
  EXPECT_EQ(run.parameters, 12345);
  EXPECT_EQ(run.global_batch, 64);
  EXPECT_EQ(run.steps, 500);
  EXPECT_NEAR(*run.samples_per_second, 640, 1e-9);
  EXPECT_EQ(run.train_loss, 0.01);
  EXPECT_EQ(run.eval_loss, 0.05);
  EXPECT_EQ(run.eval_accuracy, 0.98);
  EXPECT_EQ(run.parameters_crc32c, "0x1234abcd");
  EXPECT_NEAR(*run.step.mean, 0.1, 1e-12);
  EXPECT_NEAR(*run.step.p95, 0.15, 1e-12);
  EXPECT_EQ(run.step.part(Phase::backward), 0.04);
  EXPECT_EQ(run.step.part(Phase::other), 0.005);
  EXPECT_FALSE(run.step.unaccounted());
  EXPECT_EQ(run.bytes_per_step, 49380);
  EXPECT_EQ(run.busbw_GBps, 2.5);
  EXPECT_EQ(run.overlap_ratio, 0.75);
  ASSERT_EQ(run.ranks.size(), 2U);
  EXPECT_EQ(run.ranks[1].rank, 1);
  EXPECT_EQ(run.ranks[1].node, "node1");
  EXPECT_EQ(run.ranks[1].step.part(Phase::forward), 0.02);
  EXPECT_EQ(run.environment.at("SLURM_JOB_ID"), "4711");
}

TEST(RunRecord, UnknownKeysAreIgnored) {
  json run = good();
  run["future"] = {{"deep", {1, 2, 3}}};
  run["step_seconds"]["new_phase"] = 1.0;
  EXPECT_EQ(complaint(run), "");
}

TEST(RunRecord, NullIsUnknownAndNotWrong) {
  json run = good();
  for (const char* key : {"samples_per_second", "global_batch", "steps", "parameters", "model"}) {
    run[key] = nullptr;
  }
  run["final"] = {{"train_loss", nullptr}, {"eval_loss", nullptr}, {"eval_accuracy", nullptr}};
  for (auto& [key, value] : run["step_seconds"].items()) value = nullptr;
  EXPECT_EQ(complaint(run), "");
  const RunRecord record = test::run_of(run);
  EXPECT_FALSE(record.samples_per_second);
  EXPECT_FALSE(record.step.mean);
  EXPECT_FALSE(record.step.unaccounted());
  EXPECT_EQ(record.model, "");
}

TEST(RunRecord, MissingKeyIsNamedWithTheFile) {
  for (const std::string key :
       {"world_size", "nodes", "backend", "device", "model", "data", "parameters", "global_batch",
        "steps", "samples_per_second", "final", "parameters_crc32c", "step_seconds", "comm",
        "ranks", "environment"}) {
    json run = good();
    run.erase(key);
    EXPECT_EQ(complaint(run), "a/run.json: '" + key + "' is missing");
  }
}

TEST(RunRecord, OptionalKeysMayBeMissing) {
  json run = good();
  for (const char* key : {"program", "command", "started_unix", "finished_unix", "epochs"}) {
    run.erase(key);
  }
  run["step_seconds"].erase("mean");
  EXPECT_EQ(complaint(run), "");
  EXPECT_NEAR(*test::run_of(run).step.mean, 0.1, 1e-12);  // the sum of the parts
}

struct WrongCase {
  const char* pointer;
  const char* value;  // JSON
  const char* complaint;
};

constexpr WrongCase kWrongCases[] = {
    {"/world_size", R"("two")", "'world_size' is not an integer of at least 1"},
    {"/world_size", "0", "'world_size' is not an integer of at least 1"},
    {"/world_size", "2.5", "'world_size' is not an integer of at least 1"},
    {"/nodes", "1e18", "'nodes' is not an integer of at least 1"},
    {"/model", "7", "'model' is not a string of at most 4096 bytes"},
    {"/samples_per_second", R"("fast")", "'samples_per_second' is not a number"},
    {"/final", "3", "'final' is not an object"},
    {"/final/train_loss", R"("low")", "'final.train_loss' is not a number"},
    {"/step_seconds/data", "-1.0", "'step_seconds.data' is negative"},
    {"/step_seconds/mean", "-1.0", "'step_seconds.mean' is negative"},
    {"/step_seconds/other", "-1.0", "'step_seconds.other' is negative"},
    {"/step_seconds/p50", "1e300", "'step_seconds.p50' is 1e+300, which is impossible"},
    {"/step_seconds/waiting", "0.5",
     "'step_seconds.waiting' is larger than 'exposed_comm', which includes it"},
    {"/samples_per_second", "-5", "'samples_per_second' is negative"},
    {"/steps", "-3", "'steps' is negative"},
    {"/started_unix", "-1", "'started_unix' is negative"},
    {"/final/eval_accuracy", "1.5", "'final.eval_accuracy' is more than 1"},
    {"/final/train_loss", "-1e300", "'final.train_loss' is -1e+300, which is impossible"},
    {"/comm/overlap_ratio", "7.3", "'comm.overlap_ratio' is more than 1"},
    {"/comm/busbw_GBps", "-1", "'comm.busbw_GBps' is negative"},
    {"/ranks/0/rank", "-5", "'ranks[0].rank' is not a rank in a world of 2"},
    {"/ranks/1/rank", "2", "'ranks[1].rank' is not a rank in a world of 2"},
    {"/ranks/1/rank", "0", "'ranks[1].rank' is 0, which another entry already has"},
    {"/ranks/1/late_share", "1.2", "'ranks[1].late_share' is more than 1"},
    {"/ranks", "3", "'ranks' is not a list of at most 65536 entries"},
    {"/ranks/1", "3", "'ranks' has an entry that is not an object"},
    {"/ranks/1/node", "3", "'ranks[1].node' is not a string of at most 4096 bytes"},
    {"/ranks/0/step_seconds/forward", R"("x")", "'ranks[0].step_seconds.forward' is not a number"}};

TEST(RunRecord, WrongValueIsNamedWithItsPath) {
  const auto wrong = [](const char* pointer, const json& value) {
    json run = good();
    run[json::json_pointer(pointer)] = value;
    return complaint(run);
  };
  for (const auto& [pointer, value, said] : kWrongCases) {
    EXPECT_EQ(wrong(pointer, json::parse(value)), std::string("a/run.json: ") + said);
  }
  EXPECT_EQ(wrong("/model", std::string(5000, 'x')),
            "a/run.json: 'model' is not a string of at most 4096 bytes");
}

TEST(RunRecord, NewerKeysAreRead) {
  json run = good();
  run.update(R"({
      "settings": {"precision": "bf16", "accumulate": 2, "deep": [1, 2]},
      "outcome": "interrupted",
      "outcome_reason": "SIGTERM",
      "wall_seconds": {"total": 10, "startup": 1, "steps": 7, "evaluation": 1, "checkpoint": 0.5,
                       "rest": 0.5},
      "covers": {"first_step": 21, "last_step": 48, "earlier": [1, 2], "rows_missing": 3},
      "sharding": {"strategy": "parameters",
                   "divided_by": 4,
                   "predicted_bytes_between_steps": 100,
                   "predicted_bytes_in_step": 20,
                   "predicted_bytes_sent_per_step": 30,
                   "measured_peak_bytes": null}})"_json);
  run["ranks"][1].update(R"({"cpu_list": "0-2,8",
                             "threads": 2,
                             "late_share": 0.25,
                             "compared_steps": 40,
                             "involuntary_switches_per_second": 3.5,
                             "peak_memory_bytes": 1048576})"_json);
  const RunRecord record = test::run_of(run);
  EXPECT_EQ(record.settings,
            (std::map<std::string, std::string>{{"accumulate", "2"}, {"precision", "bf16"}}));
  EXPECT_EQ(record.outcome, "interrupted");
  EXPECT_EQ(record.outcome_reason, "SIGTERM");
  EXPECT_EQ(record.wall.total, 10);
  EXPECT_EQ(record.wall.rest, 0.5);
  EXPECT_EQ(record.covers.first_step, 21);
  EXPECT_EQ(record.covers.earlier_processes, 2U);
  EXPECT_EQ(record.covers.rows_missing, 3);
  EXPECT_EQ(record.sharding.strategy, "parameters");
  EXPECT_EQ(record.sharding.divided_by, 4);
  EXPECT_EQ(record.sharding.bytes_between_steps, 100);
  EXPECT_EQ(record.sharding.bytes_in_step, 20);
  EXPECT_EQ(record.sharding.bytes_sent_per_step, 30);
  EXPECT_EQ(record.sharding.measured_peak_bytes, std::nullopt);
  EXPECT_EQ(record.ranks[1].processors, (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(record.ranks[1].threads, 2);
  EXPECT_EQ(record.ranks[1].late_share, 0.25);
  EXPECT_EQ(record.ranks[1].preemptions, 3.5);
}

TEST(RunRecord, AllErrorsAreReportedAtOnceUpToALimit) {
  json run = good();
  run.erase("model");
  run["world_size"] = "x";
  EXPECT_EQ(complaint(run),
            "a/run.json: 'world_size' is not an integer of at least 1; 'model' is missing");
  EXPECT_THAT(complaint(json{{"schema", "slurm-ddp/run/1"}}), HasSubstr("; and 8 more"));
}

TEST(RunRecord, OtherFilesAreRejectedWithTheReason) {
  EXPECT_THAT(complaint_about(""), HasSubstr("a/run.json: it is not JSON: "));
  EXPECT_THAT(complaint_about("{\"world_size\": NaN}"), HasSubstr("a/run.json: it is not JSON: "));
  EXPECT_THAT(complaint_about("{\"a\": 1e999}"), HasSubstr("a/run.json: it is not JSON: "));
  EXPECT_THAT(complaint_about("{\"a\": \"\xff\"}"), HasSubstr("a/run.json: it is not JSON: "));
  EXPECT_EQ(complaint_about(std::string(100'000, '[')), "a/run.json: its JSON is nested too deep");
  EXPECT_EQ(complaint_about("[1]"), "a/run.json is not a JSON object");
  EXPECT_EQ(complaint_about("{}").substr(0, 33), "a/run.json: 'schema' is missing; ");
  EXPECT_EQ(complaint_about("{\"schema\": \"slurm-ddp/check/1\"}"),
            "a/run.json has the schema 'slurm-ddp/check/1', not slurm-ddp/run/1");
}

TEST(RunRecord, PartsThatDoNotSumLeaveUnaccountedTime) {
  json run = good();
  run["step_seconds"]["mean"] = 0.2;
  EXPECT_NEAR(*test::run_of(run).step.unaccounted(), 0.1, 1e-12);
  run["step_seconds"]["mean"] = 0.05;
  EXPECT_NEAR(*test::run_of(run).step.unaccounted(), -0.05, 1e-12);
  run["step_seconds"]["mean"] = 0.1004;  // rounding
  EXPECT_FALSE(test::run_of(run).step.unaccounted());
}

class RunFile : public testing::Test {
 protected:
  ddp::test::TemporaryDirectory temporary_;
  std::filesystem::path directory_ = temporary_.path();
};

TEST_F(RunFile, IsFoundInItsDirectoryOrByName) {
  std::ofstream(directory_ / "run.json") << good();
  EXPECT_EQ(read_run(directory_.string()).world_size, 2);
  EXPECT_EQ(read_run((directory_ / "run.json").string()).world_size, 2);
  EXPECT_EQ(read_run(directory_.string()).source, directory_.string());
}

TEST_F(RunFile, MissingFileIsNamed) {
  const auto complaint_of = [](const std::string& path) {
    return error_of([&] { read_run(path); });
  };
  EXPECT_EQ(complaint_of(directory_.string()),
            directory_.string() + " has no run.json; give the --report-dir of a run");
  EXPECT_EQ(complaint_of("/nonexistent"), "/nonexistent does not exist");
  std::filesystem::create_directory(directory_ / "run.json");
  EXPECT_THAT(complaint_of(directory_.string()), HasSubstr("cannot read "));
}

TEST_F(RunFile, TooLargeFileIsNotRead) {
  std::ofstream(directory_ / "run.json") << "{}";
  std::filesystem::resize_file(directory_ / "run.json", std::uintmax_t{65} << 20U);
  EXPECT_THROW(read_run(directory_.string()), InputError);
}

}  // namespace
}  // namespace ddp::report
