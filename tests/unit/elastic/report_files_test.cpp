// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/report_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/unit/temporary_directory.h"

namespace ddp::elastic {
namespace {

using nlohmann::json;

std::string text_of_file(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::string event_line(double seconds, const std::string& fields) {
  return R"({"run": "a", "t": )" + std::to_string(1000 + seconds) + R"(, "seconds": )" +
         std::to_string(seconds) + ", " + fields + "}\n";
}

const std::string kRun = event_line(0, R"("event": "begin", "nodes": 1)") +
                         event_line(1, R"("action": "start", "generation": 1, "nodes": ["n"])") +
                         event_line(2, R"("event": "training", "generation": 1, "step": 0)") +
                         event_line(9, R"("event": "progress", "generation": 1, "step": 7)");

TEST(ReportFiles, HistoryEndsWithACutLine) {
  const ddp::test::TemporaryDirectory directory;
  ddp::test::write(directory.path() / "events.jsonl", kRun + R"({"event": "prog)");
  RunAccount account;
  read_history(directory.path() / "events.jsonl", account);
  ASSERT_TRUE(account.account());
  EXPECT_EQ(account.account()->steps(), 7);
  EXPECT_EQ(account.account()->closed().wall(), 9'000'000);
}

TEST(ReportFiles, OfAHugeFileTheEndIsRead) {
  const ddp::test::TemporaryDirectory directory;
  const auto file = directory.path() / "events.jsonl";
  ddp::test::write(file,
                   event_line(0, R"("event": "begin", "nodes": 3)") + std::string(1 << 20, 'x'));
  std::filesystem::resize_file(file, std::uintmax_t{3} << 30);  // sparse: one line of zeros
  std::ofstream(file, std::ios::app) << "\n" << kRun;
  RunAccount account;
  read_history(file, account);
  ASSERT_TRUE(account.account());
  EXPECT_EQ(account.account()->jobs(), 1);
  EXPECT_EQ(account.account()->steps(), 7);
}

TEST(ReportFiles, NothingElseThanARegularFileIsRead) {
  const ddp::test::TemporaryDirectory directory;
  ddp::test::write(directory.path() / "target", kRun);
  std::filesystem::create_symlink(directory.path() / "target", directory.path() / "link");
  for (const char* name : {"link", "", "missing"}) {
    RunAccount account;
    read_history(directory.path() / name, account);
    EXPECT_FALSE(account.account()) << name;
  }
}

TEST(ReportFiles, TheSectionIsAddedToARunAndNothingElse) {
  const ddp::test::TemporaryDirectory directory;
  const auto file = directory.path() / "run.json";
  add_resilience(file, {{"ettr", 0.5}});
  EXPECT_FALSE(std::filesystem::exists(file));
  for (const char* other : {"", "{", "[]", R"({"schema": "other/1"})", R"({"schema": 7})"}) {
    ddp::test::write(file, other);
    add_resilience(file, {{"ettr", 0.5}});
    EXPECT_EQ(text_of_file(file), other);
  }
  ddp::test::write(file, R"({"schema": "slurm-ddp/run/1", "steps": 3, "resilience": {"old": 1}})");
  add_resilience(file, {{"ettr", 0.5}});
  const auto report = json::parse(text_of_file(file));
  EXPECT_EQ(report.at("steps"), 3);
  EXPECT_EQ(report.at("resilience"), (json{{"ettr", 0.5}}));
}

}  // namespace
}  // namespace ddp::elastic
