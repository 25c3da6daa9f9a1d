// SPDX-License-Identifier: Apache-2.0
// Report files: written completely, never through another user's link, with selected lines of an
// earlier process.
#include "ddp_runtime/train/report/report_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "base/errors.h"
#include "ddp_runtime/train/report/run_history.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

class ReportFile : public testing::Test {
 protected:
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  test::TemporaryDirectory temporary_;
  fs::path directory_ = temporary_.path();
  fs::path file_ = directory_ / "steps.csv";
};

const auto kNone = [](std::string_view) { return false; };
const auto kAll = [](std::string_view) { return true; };

TEST_F(ReportFile, PlantedLinkIsReplacedNotFollowed) {
  const fs::path treasure = directory_ / "treasure";
  test::write(treasure, "precious");
  fs::create_symlink(treasure, file_);
  EXPECT_EQ(read_if_there(file_, 100), "");
  LineFile lines(file_, "head\n", kAll);
  lines.append("1\n");
  EXPECT_EQ(test::text_of(treasure), "precious");
  EXPECT_EQ(test::text_of(file_), "head\n1\n");
}

TEST_F(ReportFile, IsReadOnlyUpToAMaximumSize) {
  test::write(file_, "0123456789");
  EXPECT_EQ(read_if_there(file_, 10), "0123456789");
  EXPECT_EQ(read_if_there(file_, 9), "");
  EXPECT_EQ(read_if_there(directory_, 10), "");
  EXPECT_EQ(read_if_there(directory_ / "none", 10), "");
}

TEST_F(ReportFile, KeptLinesComeFirst) {
  test::write(file_, "head\na\nb\ntorn");
  LineFile lines(file_, "new head\n", [](std::string_view line) { return line != "head"; });
  EXPECT_EQ(test::text_of(file_), "new head\na\nb\n") << "the incomplete line must be dropped";
  lines.append("c\nd\n");
  lines.append("e\n");
  EXPECT_EQ(test::text_of(file_), "new head\na\nb\nc\nd\ne\n");
  EXPECT_EQ(files(), 1U);
}

TEST_F(ReportFile, LongFilesAndLongLinesAreRead) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "line " + std::to_string(i) + "\n";
  test::write(file_, std::string(300000, 'x') + "\n" + text);
  LineFile lines(file_, "", kAll);
  EXPECT_EQ(test::text_of(file_), text);
}

// On a full device, or at a size limit, a partial line must be removed.
TEST_F(ReportFile, LinesAreWrittenCompletelyOrNotAtAll) {
  LineFile lines(file_, "head\n", kNone);
  lines.append("first\n");
  const struct rlimit few { 20, RLIM_INFINITY };
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &few);
  EXPECT_THROW(lines.append("a second line that is too long for it\n"), RuntimeError);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(test::text_of(file_), "head\nfirst\n");
  lines.append("third\n");
  EXPECT_EQ(test::text_of(file_), "head\nfirst\nthird\n");
}

TEST(UnfinishedReport, IsOfThisRunAndGetsItsEnding) {
  const nlohmann::json its = {{"batch", 8}};
  const auto report = [&its](const nlohmann::json& outcome, std::int64_t last_step) {
    return nlohmann::json{{"outcome", outcome}, {"outcome_reason", "SIGTERM"},
                          {"steps", 7},         {"final", {{"train_loss", 0.25}}},
                          {"settings", its},    {"covers", {{"last_step", last_step}}}};
  };
  for (const char* outcome : {"running", "interrupted", "failed"}) {
    EXPECT_EQ(unfinished_report(report(outcome, 20).dump(), 20, its), report(outcome, 20))
        << outcome;
  }
  for (const auto& other :
       {report("finished", 20), report("running", 21), report("running", 19), report(nullptr, 20),
        nlohmann::json{{"outcome", "running"}}, nlohmann::json(3)}) {
    EXPECT_TRUE(unfinished_report(other.dump(), 20, its).is_null()) << other;
  }
  EXPECT_TRUE(unfinished_report("{", 20, its).is_null());
  EXPECT_TRUE(unfinished_report(report("running", 20).dump(), 20, {{"batch", 9}}).is_null());

  const auto ended = completed_report(report("interrupted", 20),
                                      {{"outcome", "finished"},
                                       {"outcome_reason", ""},
                                       {"steps", 0},
                                       {"final", {{"eval_loss", 0.5}, {"train_loss", 0}}},
                                       {"parameters_crc32c", "0x1"},
                                       {"finished_unix", 9}});
  EXPECT_EQ(ended.at("outcome"), "finished");
  EXPECT_EQ(ended.at("final").at("eval_loss"), 0.5);
  EXPECT_EQ(ended.at("final").at("train_loss"), 0.25);
  EXPECT_EQ(ended.at("steps"), 7) << "those of the process that trained";
}

TEST(KeptRows, BelongToStepsThatAreNotRepeated) {
  KeptRows keep(3);
  EXPECT_FALSE(keep("step,epoch,loss,learning_rate,seconds"));
  EXPECT_TRUE(keep("1,0,2.3,0.05,0.1"));
  EXPECT_TRUE(keep("2,0,2.3,0.05,0.1"));
  EXPECT_FALSE(keep("2,0,2.3,0.05,0.1")) << "a repeated row must be dropped";
  EXPECT_FALSE(keep("3,0,2.3")) << "an incomplete row must be dropped";
  EXPECT_TRUE(keep("3,0,nan,0.05,0.1"));
  EXPECT_FALSE(keep("4,0,2.3,0.05,0.1")) << "a row after the checkpoint must be dropped";
  EXPECT_FALSE(keep("x,0,2.3,0.05,0.1"));
  EXPECT_FALSE(keep("-1,0,2.3,0.05,0.1"));
  EXPECT_FALSE(keep(""));
  EXPECT_EQ(keep.count(), 3);
  EXPECT_EQ(keep.generation(), 0) << "rows of older versions have none";
}

TEST(KeptRows, SayWhichGenerationMadeThem) {
  KeptRows keep(9);
  EXPECT_FALSE(keep("step,epoch,loss,learning_rate,seconds,generation,ranks"));
  EXPECT_TRUE(keep("1,0,2.3,0.05,0.1"));
  EXPECT_TRUE(keep("2,0,2.3,0.05,0.1,2,4"));
  EXPECT_TRUE(keep("3,0,2.3,0.05,0.1,7,3"));
  EXPECT_FALSE(keep("4,0,2.3,0.05,0.1,8")) << "an incomplete row must be dropped";
  for (const char* row : {"4,0,2.3,0.05,0.1,,3", "4,0,2.3,0.05,0.1,-8,3", "4,0,2.3,0.05,0.1,8x,3",
                          "4,0,2.3,0.05,0.1,99999999999999999999,3"}) {
    EXPECT_FALSE(keep(row)) << row;
  }
  EXPECT_EQ(keep.generation(), 7);
}

TEST(EarlierProcesses, AreListedInOrder) {
  EXPECT_TRUE(earlier_processes("").empty());
  EXPECT_TRUE(earlier_processes("[1]").empty());
  EXPECT_TRUE(earlier_processes("{\"covers\"").empty());
  const auto old = earlier_processes(R"({"steps": 20, "world_size": 2, "ranks": [1, 2]})");
  ASSERT_EQ(old.size(), 1U) << "a version that did not record its steps";
  EXPECT_EQ(old[0]["steps"], 20);
  EXPECT_TRUE(old[0]["last_step"].is_null());
  nlohmann::json second = {{"outcome", "interrupted"},
                           {"covers", {{"first_step", 21}, {"last_step", 40}, {"earlier", old}}}};
  const auto both = earlier_processes(second.dump());
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0], old[0]);
  EXPECT_EQ(both[1]["outcome"], "interrupted");
  EXPECT_EQ(both[1]["last_step"], 40);
}

}  // namespace
}  // namespace ddp::train
