// SPDX-License-Identifier: Apache-2.0
// Which lines belong to a run, and logs that are damaged, random or very long.
#include "ddp_runtime/elastic/accounting/run_account.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <string>

#include "ddp_runtime/elastic/accounting/resilience.h"
#include "tests/unit/elastic/synthetic_log.h"

namespace ddp::elastic {
namespace {

using test::expect_sums;
using test::kSecond;
using test::Log;

TEST(RunAccount, ARunAfterAFinishedOneIsAnother) {
  RunAccount run;
  Log(run, "a", "7", 1000).trains_from(0).progress(10, 1, 10, 10).finished(10, 1);
  Log(run, "b", "8", 2000).trains_from(10).progress(5, 1, 15, 5).finished(5, 1);
  const auto account = run.account()->closed();
  EXPECT_EQ(account.wall(), 5 * kSecond);
  EXPECT_EQ(account.jobs(), 1);
  EXPECT_EQ(account.first_step(), 10);
}

TEST(RunAccount, ARunThatBeginsAnewIsAnother) {
  for (const int step : {0, 4}) {
    RunAccount run;
    Log(run, "a", "7", 1000).trains_from(0).progress(10, 1, 10, 10).lost(10, 1).finish(10, 1);
    Log(run, "b", "8", 1100).trains_from(step).progress(5, 1, step + 5, 5).finished(5, 1);
    const auto account = run.account()->closed();
    expect_sums(account);
    EXPECT_EQ(account.jobs(), step == 0 ? 1 : 2);
    EXPECT_EQ(account.wall(), (step == 0 ? 5 : 105) * kSecond);
    // The same job has lost all.
    RunAccount same;
    Log(same, "a", "7", 1000).trains_from(0).progress(10, 1, 10, 10);
    Log(same, "b", "7", 1100).trains_from(0);
    EXPECT_EQ(same.account()->uses()[Use::repeat], 10 * kSecond);
  }
}

TEST(RunAccount, LinesOfAnotherRunThatWritesToTheSameFileAreLeftOut) {
  RunAccount run;
  Log mine(run, "a");
  Log other(run, "other");
  mine.begin().start(0, 1).training(1, 1, 0);
  other.progress(500, 1, 400, 100).killed(600, 1).finish(700, 1);
  mine.progress(11, 1, 10, 10).finished(11, 1);
  const auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(account.wall(), 11 * kSecond);
  EXPECT_EQ(account.faults(), 0);
}

TEST(RunAccount, DamagedLinesAreLeftOut) {
  RunAccount run;
  Log log(run, "a");
  for (const auto* line :
       {"", "{", "null", "[]", "7", "\x80\xff", R"({"event": 7})", R"({"event": "progress"})",
        R"({"event": "finish", "run": "a", "seconds": 9})", R"({"event": "begin", "run": [1]})"}) {
    run.add_line(line);
  }
  run.add_line(std::string(100'000, '['));
  log.begin().start(0, 1).training(1, 1, 0);
  for (
      const auto* line :
      {R"({"event": "progress", "run": "a", "generation": 1, "step": 1e99, "seconds": 2})",
       R"({"event": "progress", "run": "a", "generation": 1, "step": 5, "seconds": -2})",
       R"({"event": "progress", "run": "a", "generation": 1, "step": 18446744073709551615})",
       R"({"event": "training", "run": "a", "generation": 1, "step": -5, "seconds": 3})",
       R"({"event": "progress", "run": "a", "generation": 1, "step": 6, "step_seconds": 1e300})",
       R"({"action": "start", "run": "a", "generation": -1, "nodes": "all", "seconds": 1e300})",
       R"({"event": "failed", "run": "a", "generation": 0, "blamed": [1, {}], "seconds": 1e18})"}) {
    run.add_line(line);
    expect_sums(*run.account());
  }
  expect_sums(run.account()->closed());
  EXPECT_NO_THROW(resilience_of(run.account()->closed()).dump());
}

// Whatever is told, in whatever order: each moment has one use.
TEST(Account, UsesSumToTheWallTimeWhateverHappens) {
#ifdef SLURM_DDP_SANITIZED
  constexpr unsigned kRuns = 40;
#else
  constexpr unsigned kRuns = 200;
#endif
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&random](int below) {
      return std::uniform_int_distribution<int>(0, below - 1)(random);
    };
    RunAccount run;
    double now = 0;
    double unix_begin = 1000;
    int generation = 0;
    int jobs = 0;
    int step = 0;
    double steps = 0;
    std::optional<Log> log;
    for (int i = 0; i < 400; ++i) {
      if (!log || pick(60) == 0) {
        unix_begin += now + pick(100) - 10;
        now = 0;
        log.emplace(run, fmt::format("r{}", jobs++), pick(3) == 0 ? "8" : "7", unix_begin);
        log->begin(1 + pick(4), 1 + pick(2));
      }
      // Some lines come late.
      now += std::exponential_distribution<double>(1)(random);
      const double at = now - (pick(5) == 0 ? 1 : 0);
      const int told = generation - (pick(8) == 0 ? 1 : 0);
      switch (pick(14)) {
        case 0:
          steps = 0;
          log->start(at, ++generation, 1 + pick(4));
          break;
        case 1:
          log->training(at, told, step = std::max(step - pick(5), 0));
          break;
        case 2:
          log->killed(at, told, pick(4));
          break;
        case 3:
          log->gone(at, told);
          break;
        case 4:
          log->kept(at, told, step - pick(3));
          break;
        case 5:
          log->event(at, "restoring", fmt::format(R"("generation": {})", told));
          break;
        case 6:
          log->event(at, "rank_ready", fmt::format(R"("generation": {}, "rank": 0)", told));
          break;
        case 7:
          log->event(at, "progress", fmt::format(R"("generation": {}, "step": {})", told, ++step));
          break;
        case 8:
          if (pick(4) == 0) log->finish(at, pick(2) * 75);
          break;
        case 9:
          if (pick(4) == 0) log->event(at, "signaled", R"("signal": 15)");
          break;
        case 10:
          log->ended_well(at, told);
          break;
        default:
          step += pick(4);
          steps += pick(3);
          log->progress(at, told, step, steps, pick(2) * steps / 10, pick(9));
      }
      ASSERT_TRUE(run.account());
      expect_sums(*run.account());
      if (i % 20 == 0) expect_sums(run.account()->closed());
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", entry " << i;
    }
  }
}

TEST(Account, OfTenThousandGenerationsIsBounded) {
  RunAccount run;
  Log log(run, "a");
  log.begin();
  double now = 0;
  for (int generation = 1; generation <= 10'000; ++generation) {
    log.start(now + 1, generation).training(now + 2, generation, 10 * (generation - 1));
    now += 14;
    log.progress(now, generation, 10 * generation + 2, 12).killed(now, generation);
    log.gone(now, generation);
  }
  log.finish(now, 1);
  const auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(account.faults(), 10'000);
  EXPECT_EQ(account.number_of_generations(), 10'000);
  EXPECT_EQ(account.generations().size(), Account::kMaxGenerations);
  EXPECT_EQ(account.uses()[Use::repeat], (2 * 9'999 + 12) * kSecond);
  EXPECT_LT(resilience_of(account).dump(2).size(), 2U << 20);
}

// The first cells of the table under "### resilience" in docs/report.md.
std::set<std::string> documented_keys() {
  std::ifstream page(SLURM_DDP_SOURCE_DIR "/docs/report.md");
  const std::regex key("`([a-z_.\\[\\]]+)`");
  std::set<std::string> keys;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("#")) inside = line == "### resilience";
    if (!inside || !line.starts_with("| `")) continue;
    const auto cell = line.substr(0, line.find('|', 1));
    for (std::sregex_iterator at(cell.begin(), cell.end(), key), end; at != end; ++at) {
      keys.insert((*at)[1]);
    }
  }
  return keys;
}

TEST(Resilience, HasExactlyTheKeysOfItsTable) {
  RunAccount run;
  Log(run, "a", "7").trains_from(0).progress(9, 1, 9, 9).finish(9, 1);
  const auto documented = documented_keys();
  std::set<std::string> keys;
  const auto resilience = resilience_of(run.account()->closed());
  for (const auto& [key, value] : resilience.items()) {
    if (documented.contains(key)) {
      keys.insert(key);
      continue;
    }
    const auto& object = value.is_array() ? value.at(0) : value;
    for (const auto& inner : object.items()) {
      keys.insert(key + (value.is_array() ? "[]." : ".") + inner.key());
    }
  }
  EXPECT_EQ(keys, documented);
}

TEST(Resilience, SaysTheBiggestLossInOneSentence) {
  RunAccount run;
  Log(run, "a").begin().start(0, 1).training(20, 1, 0).progress(100, 1, 80, 80).finished(100, 1);
  EXPECT_EQ(resilience_sentence(run.account()->closed()),
            "the program made progress in 80.0 % of 100 s (ETTR 0.800); the biggest loss is "
            "starting processes, 20.0 %");
}

TEST(StepPieces, AreBoundedAndLoseNoTime) {
  StepPieces pieces;
  for (std::int64_t step = 0; step < 100'000; ++step) {
    pieces.add({step, step + 1, 1000, 10, step / 30});
    ASSERT_LT(pieces.size(), StepPieces::kMaxPieces);
  }
  Micros productive = 0;
  Micros degraded = 0;
  std::int64_t next = 100'000;
  pieces.take_after(99'998,
                    [&](const StepPieces::Piece& piece) { productive += piece.productive; });
  EXPECT_EQ(productive, 2000);  // the newest pieces are short
  pieces.take_after(0, [&](const StepPieces::Piece& piece) {
    productive += piece.productive;
    degraded += piece.degraded;
    EXPECT_LT(piece.from, next);
    next = piece.from;
  });
  EXPECT_EQ(productive, 100'000 * 1000);
  EXPECT_EQ(degraded, 99'998 * 10);
  EXPECT_EQ(pieces.size(), 0U);
}

}  // namespace
}  // namespace ddp::elastic
