#include "ddp_runtime/train/run_report.h"

#include <gtest/gtest.h>

#include "ddp_runtime/comm/in_process/run_ranks.h"

namespace ddp::train {
namespace {

TEST(ParametersCrc32c, IsOverFloat32BytesInNameOrder) {
  // crc32c of the 8 bytes of 1.0f, 2.0f: a bitwise implementation gives 0x28c0c9b1 for
  // 0000803f00000040.
  const std::vector<NamedTensor> parameters{{"b", torch::tensor({2.0F})},
                                            {"a", torch::tensor({1.0})}};
  EXPECT_EQ(parameters_crc32c(parameters), 0x28c0c9b1U);
}

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
    EXPECT_NEAR(seconds.at("p50").get<double>(), 0.2, 1e-9) << "of the slowest rank";
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

TEST(RunReport, ARunThatHadNothingToDoHasNoRates) {
  comm::run_ranks(1, [](comm::Group& group) {
    const auto report =
        make_run_report(group, {"p", "c", "m", "d", 1, 8, 1, 0}, {0, 0, std::nullopt, 0, {}}, {});
    EXPECT_TRUE(report.at("samples_per_second").is_null());
    EXPECT_TRUE(report.at("comm").at("overlap_ratio").is_null());
    EXPECT_TRUE(report.at("final").at("eval_loss").is_null());
  });
}

}  // namespace
}  // namespace ddp::train
