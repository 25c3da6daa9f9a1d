// SPDX-License-Identifier: Apache-2.0
// Command lines that ddp-train refuses before anything starts, each with its sentence.
#include "ddp_runtime/tools/train_command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <variant>
#include <vector>

namespace ddp::tools {
namespace {

using testing::HasSubstr;

struct Row {
  std::vector<std::string> arguments;
  std::string sentence;  // a part of it
};

std::ostream& operator<<(std::ostream& out, const Row& row) {
  for (const auto& argument : row.arguments) out << argument << ' ';
  return out;
}

class Refused : public testing::TestWithParam<Row> {};

TEST_P(Refused, WithOneSentence) {
  const auto read = read_train_command_line(GetParam().arguments);
  ASSERT_TRUE(std::holds_alternative<NoRun>(read)) << GetParam().sentence;
  const auto& [exit_code, text] = std::get<NoRun>(read);
  EXPECT_EQ(exit_code, 2);
  EXPECT_THAT(text, HasSubstr(GetParam().sentence));
  EXPECT_EQ(text.find('\n'), text.npos) << text;
}

INSTANTIATE_TEST_SUITE_P(
    CommandLines, Refused,
    testing::Values(
        Row{{"--staleness", "2", "--deterministic"}, "--deterministic needs --staleness 0"},
        Row{{"--staleness", "-1"}, "'-1' is not a number from 0 to 1000000000"},
        Row{{"--outer", "nesterov"}, "add --local-steps"},
        Row{{"--local-steps", "4", "--outer-lr", "0.5"}, "are for --outer nesterov"},
        Row{{"--local-steps", "4", "--outer", "sgd"},
            "--outer must be average or nesterov, not 'sgd'"},
        Row{{"--local-steps", "4", "--local-within", "rack"},
            "--local-within must be rank or node, not 'rack'"},
        Row{{"--local-steps", "-1"}, "is not a number from 0 to"},
        Row{{"--checkpoint-dir", ""},
            "--checkpoint-dir: the name is empty, as with a variable that is not set"},
        Row{{"--resume", ""}, "--resume: the name is empty"},
        Row{{"--init-from", ""}, "--init-from: the name is empty"},
        Row{{"--report-dir", ""}, "--report-dir: the name is empty"},
        Row{{"--checkpoint-memory", "20"}, "--checkpoint-memory needs a --checkpoint-dir"},
        Row{{"--checkpoint-dir", "ck", "--checkpoint-memory", "often"},
            "--checkpoint-memory takes a number of steps, a time such as 30s, or 'auto', not "
            "'often'"},
        Row{{"--steps", "1", "--offload-optimizer", ""},
            "--offload-optimizer is empty, as with a variable that is not set"},
        Row{{"--steps", "1", "--accumulate", "2", "--reduce-once"},
            "--reduce-once is for --shard gradients, parameters and hybrid"},
        Row{{"--steps", "1", "--shard", "optimizer", "--reduce-once"},
            "--reduce-once is for --shard gradients, parameters and hybrid"},
        Row{{"--steps", "1", "--reduce-type", "fp16"},
            "--reduce-type must be auto, fp32 or bf16, not 'fp16'"},
        Row{{"--steps", "1", "--shard", "halves"},
            "--shard must be none, optimizer, gradients, parameters or hybrid, not 'halves'"},
        Row{{"--steps", "1", "--shard", "optimizer", "--comm-hook", "noop"},
            "--comm-hook noop leaves each rank its own gradients"},
        Row{{"--steps", "1", "--shard", "halves"},
            "--shard must be none, optimizer, gradients, parameters or hybrid"},
        Row{{"--steps", "1", "--shard", "gradients", "--keep-after-forward"},
            "--keep-after-forward is for --shard parameters, and for hybrid on GPUs"},
        Row{{"--precision", "fp8"}, "unknown precision 'fp8'"},
        Row{{"--param-type", "fp16"},
            "unknown type of weights 'fp16' (--param-type); use fp32 or bf16"},
        Row{{"--precision", "bf16", "--param-type", "bf16", "--comm-hook", "powersgd"},
            "--comm-hook powersgd compresses float32 gradients only"},
        Row{{"--backend", "nccl"},
            "--backend nccl is for GPUs; add --device cuda, or use --backend mpi or tcp"},
        Row{{"--device", "gpu"}, "unknown device 'gpu'; use cpu or cuda"},
        Row{{"--device", "cuda", "--backend", "nccl", "--deterministic"},
            "--deterministic needs --backend mpi or tcp: NCCL does not add in rank order"},
        Row{{"--device", "cuda", "--staleness", "2"}, "--staleness needs --device cpu"},
        Row{{"--checkpoint-every", "never"}, "--checkpoint-every takes"},
        Row{{"--mtbf", "6h"}, "--mtbf needs --checkpoint-every auto"},
        Row{{"--checkpoint-every", "auto", "--mtbf", "6"},
            "--mtbf takes a time such as 90min, 6h or 2d, not '6'"},
        Row{{"--checkpoint-dir", "ck", "--keep-every", "5min"},
            "--keep-every takes a number of steps, or of epochs such as 5epochs, not '5min'"},
        Row{{"--keep-every", "5"}, "--keep-every needs a --checkpoint-dir"},
        Row{{"--checkpoint-dir", "ck", "--best-metric", "f1"},
            "unknown metric 'f1' of the best evaluation (--best-metric); use loss or accuracy"},
        Row{{"--after-save", "true"}, "--after-save needs a --checkpoint-dir"},
        Row{{"--after-save-limit", "5"},
            "--after-save-limit takes a time such as 90s, 10min or 1h, not '5'"},
        Row{{"--epochs", "0"}, "--epochs: '0' is not a number from 1 to 1000000000"},
        Row{{"--silence", "0.5"}, "--silence: '0.5' is not a number of at least 1"},
        Row{{"--no-such-option"}, "--no-such-option"},
        Row{{"--steps", "9223372036854775807"},
            "--steps: '9223372036854775807' is not a number from 0 to 1000000000000000"},
        Row{{"--steps", "99999999999999999999"},
            "--steps: '99999999999999999999' is not a number from 0 to"},
        Row{{"--workers", "100000"}, "--workers: '100000' is not a number from 1 to 1024"},
        Row{{"--threads", "100000"}, "--threads: '100000' is not a number from 0 to 4096"},
        Row{{"--seed", "-1"}, "--seed: '-1' is not a number from 0 to 18446744073709551615"},
        Row{{"--seed", "18446744073709551616"},
            "--seed: '18446744073709551616' is not a number from 0 to"},
        Row{{"--bucket-mb", "1e300"},
            "--bucket-mb: '1e300' is not a number above 0 and at most 1e12"},
        Row{{"--schedule", "linear"}, "unknown schedule 'linear'"},
        Row{{"--on-nan", "ignore"}, "--on-nan must be stop or skip"},
        Row{{"--augment", "rotate"}, "use none, crop, flip or crop+flip"},
        Row{{"--keep-best"}, "--keep-best needs a --checkpoint-dir"},
        Row{{"--patience", "-1"}, "--patience: '-1' is not a number of at least 0"}));

TEST(TrainCommandLine, HelpAndVersionAreNoErrors) {
  for (const auto* option : {"--help", "--version"}) {
    const auto read = read_train_command_line({option});
    ASSERT_TRUE(std::holds_alternative<NoRun>(read));
    EXPECT_EQ(std::get<NoRun>(read).exit_code, 0);
    EXPECT_THAT(std::get<NoRun>(read).text, HasSubstr("ddp-train"));
  }
}

// So that users can override the defaults of a job script.
TEST(TrainCommandLine, LastValueOfARepeatedOptionCounts) {
  const auto read = read_train_command_line({"--batch", "8", "--lr", "0.5", "--batch", "16"});
  const auto& line = std::get<TrainCommandLine>(read);
  EXPECT_EQ(line.train.batch, 16);
  EXPECT_DOUBLE_EQ(line.train.optimizer.learning_rate, 0.5);
}

}  // namespace
}  // namespace ddp::tools
