// SPDX-License-Identifier: Apache-2.0
// Synthetic logs for tests of the accounting. Times are seconds since `begin`.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "ddp_runtime/elastic/accounting/run_account.h"

namespace ddp::elastic::test {

using nlohmann::json;

inline constexpr Micros kSecond = 1'000'000;

// Lines of events.jsonl of one ddp-run.
class Log {
 public:
  Log(RunAccount& account, std::string run, std::string job = {}, double unix_begin = 1e9)
      : account_(account), run_(std::move(run)), job_(std::move(job)), unix_begin_(unix_begin) {}

  // {"event": NAME, ...} from `fields`, a JSON object without braces.
  Log& event(double seconds, std::string_view name, std::string_view fields = "") {
    return line(seconds, "event", name, fields);
  }
  Log& action(double seconds, std::string_view name, std::string_view fields = "") {
    return line(seconds, "action", name, fields);
  }
  Log& begin(int nodes = 1, int ranks_per_node = 1) {
    return event(0, "begin",
                 fmt::format(R"("nodes": {}, "allocated": {}, "ranks_per_node": {})", nodes, nodes,
                             ranks_per_node));
  }
  Log& start(double seconds, int generation, int nodes = 1) {
    json names = json::array();
    for (int i = 0; i < nodes; ++i) names.push_back(fmt::format("n{}", i));
    return action(seconds, "start",
                  fmt::format(R"("generation": {}, "nodes": {}, "restore": "none")", generation,
                              names.dump()));
  }
  Log& training(double seconds, int generation, int step) {
    return event(seconds, "training", of(generation, step));
  }
  // The first generation, of one rank, trains at once.
  Log& trains_from(int step) { return begin().start(0, 1).training(0, 1, step); }
  Log& progress(double seconds, int generation, int step, double steps, double stall = 0,
                int saves = 0) {
    return event(seconds, "progress",
                 fmt::format(R"({}, "step_seconds": {}, "stall_seconds": {}, "saves": {})",
                             of(generation, step), steps, stall, saves));
  }
  Log& kept(double seconds, int generation, int step) {
    return event(seconds, "kept", of(generation, step) + R"(, "tier": "disk")");
  }
  Log& killed(double seconds, int generation, int rank = 0) {
    return event(seconds, "rank_ended",
                 fmt::format(R"("generation": {}, "rank": {}, "signal": 9)", generation, rank));
  }
  Log& gone(double seconds, int generation) {
    return event(seconds, "executor_gone", fmt::format(R"("generation": {})", generation));
  }
  // A killed rank ends its generation.
  Log& lost(double seconds, int generation) {
    return killed(seconds, generation).gone(seconds, generation);
  }
  Log& ended_well(double seconds, int generation) {
    event(seconds, "rank_ended",
          fmt::format(R"("generation": {}, "rank": 0, "code": 0)", generation));
    return gone(seconds, generation);
  }
  // The generation ends well, and with it the run.
  Log& finished(double seconds, int generation) {
    return ended_well(seconds, generation).finish(seconds, 0);
  }
  Log& finish(double seconds, int code) {
    return action(seconds, "finish", fmt::format(R"("code": {})", code));
  }

 private:
  static std::string of(int generation, int step) {
    return fmt::format(R"("generation": {}, "step": {})", generation, step);
  }
  Log& line(double seconds, std::string_view kind, std::string_view name, std::string_view fields) {
    auto text = fmt::format(R"({{"{}": "{}", "run": "{}", "seconds": {}, "t": {:.3f})", kind, name,
                            run_, seconds, unix_begin_ + seconds);
    if (!job_.empty()) text += fmt::format(R"(, "job": "{}")", job_);
    if (!fields.empty()) text += fmt::format(", {}", fields);
    account_.add_line(text + "}");
    return *this;
  }

  RunAccount& account_;
  std::string run_;
  std::string job_;
  double unix_begin_;
};

// Fails unless the uses, those of all generations together, and the wall time are the same.
inline void expect_sums(const Account& account) {
  EXPECT_EQ(account.uses().total(), account.wall());
  Uses parts = account.older();
  parts += account.after();
  for (const auto& generation : account.generations()) parts += generation.uses;
  EXPECT_EQ(parts, account.uses());
  for (std::size_t i = 0; i < kUses; ++i) {
    EXPECT_GE(account.uses()[static_cast<Use>(i)], 0) << kUseNames[i];
  }
}

// Seconds by use, without those of which there are none.
inline std::map<std::string, double> seconds_by_use(const Account& account) {
  std::map<std::string, double> seconds;
  for (std::size_t i = 0; i < kUses; ++i) {
    const auto time = account.uses()[static_cast<Use>(i)];
    if (time != 0) seconds[std::string(kUseNames[i])] = static_cast<double>(time) / kSecond;
  }
  return seconds;
}

}  // namespace ddp::elastic::test
