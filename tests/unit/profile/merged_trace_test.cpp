// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/merged_trace.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"

namespace ddp::profile {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The clock of a node: its reading `now` seconds after the first step began.
struct NodeClock {
  double offset = 0;
  double rate = 0;

  Clock::time_point operator()(double now) const {
    const double reading = 1e5 + (1 + rate) * now + offset;
    return Clock::time_point(
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(reading)));
  }
};

// 20 steps of 100 ms: `late` seconds of more computation, then two buckets that end together on all
// ranks.
RankTrace trace_of(int rank, const std::string& node, NodeClock clock, double late = 0) {
  RankTrace trace{rank, node, node, {}};
  for (int step = 0; step < 20; ++step) {
    const double begin = 0.1 * step;
    trace.events.push_back({"forward", {clock(begin), clock(begin + 0.03 + late)}, false});
    trace.events.push_back({"bucket 0", {clock(begin + 0.04 + late), clock(begin + 0.08)}, true});
    trace.events.push_back({"bucket 1", {clock(begin + 0.06 + late), clock(begin + 0.09)}, true});
  }
  return trace;
}

// By rank: the ends of its collectives in the trace, in microseconds.
std::map<int, std::vector<double>> ends_in(const json& trace) {
  std::map<int, std::vector<double>> ends;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("tid") != 1) continue;
    ends[event.at("pid")].push_back(event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  return ends;
}

TEST(MergedTrace, AlignsTheClocksOfNodes) {
  const NodeClock skewed{5, 200e-6};
  const auto trace = json::parse(
      merged_trace({trace_of(0, "n0", {}), trace_of(1, "n0", {}, 0.01), trace_of(2, "n1", skewed),
                    trace_of(3, "n1", skewed), trace_of(4, "n2", {-86400, -50e-6})}));
  EXPECT_EQ(trace["otherData"]["clocks"], "aligned");
  EXPECT_LT(trace["otherData"]["residual_us"], 100);
  const auto ends = ends_in(trace);
  ASSERT_EQ(ends.size(), 5U);
  for (const auto& [rank, list] : ends) {
    ASSERT_EQ(list.size(), 40U);
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_NEAR(list[i], ends.at(0)[i], 100) << "rank " << rank << ", collective " << i;
    }
  }
}

// A rank that gets its processor late leaves later than the others of its node.
TEST(MergedTrace, FirstRankOfANodeToLeaveCounts) {
  auto slow = trace_of(2, "n1", {5, 0});
  for (auto& event : slow.events) event.time.end += std::chrono::milliseconds(10);
  const auto trace =
      json::parse(merged_trace({trace_of(0, "n0", {}), trace_of(1, "n1", {5, 0}), slow}));
  const auto ends = ends_in(trace);
  EXPECT_NEAR(ends.at(1).back(), ends.at(0).back(), 100);
  EXPECT_NEAR(ends.at(2).back(), ends.at(0).back() + 10000, 100);
}

TEST(MergedTrace, RanksOfOneNodeNeedNoCollectives) {
  auto first = trace_of(0, "n0", {});
  auto second = trace_of(1, "n0", {}, 0.01);
  std::erase_if(second.events, [](const auto& event) { return event.communication; });
  const auto trace = json::parse(merged_trace({first, second}));
  EXPECT_EQ(trace["otherData"], json({{"clocks", "one"}}));
  double earliest = 1e9;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") earliest = std::min(earliest, event["ts"].get<double>());
  }
  EXPECT_EQ(earliest, 0);
}

TEST(MergedTrace, SaysWhyClocksAreUnknown) {
  auto other = trace_of(1, "n1", {5, 0});
  other.events.back().name = "bucket 7";
  auto trace = json::parse(merged_trace({trace_of(0, "n0", {}), other}));
  EXPECT_EQ(trace["otherData"]["clocks"], "unknown");
  EXPECT_THAT(trace["otherData"]["reason"],
              "ranks 0 and 1 have had different collectives in these steps");

  // Ends that jump around by 20 ms.
  auto jumping = trace_of(1, "n1", {5, 0});
  for (std::size_t i = 0; i < jumping.events.size(); ++i) {
    jumping.events[i].time.end += std::chrono::milliseconds(i % 3 == 0 ? 20 : i % 7);
  }
  trace = json::parse(merged_trace({trace_of(0, "n0", {}), jumping}));
  EXPECT_EQ(trace["otherData"]["clocks"], "unknown");
  EXPECT_THAT(trace["otherData"]["reason"].get<std::string>(), HasSubstr("ms between nodes"));
  EXPECT_FALSE(trace["otherData"].contains("residual_us"));
  // Each node begins at 0.
  std::map<int, double> first;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") first.try_emplace(event["pid"], event["ts"]);
  }
  EXPECT_EQ(first.at(0), 0);
  EXPECT_EQ(first.at(1), 0);
}

TEST(MergedTrace, ARankWithoutEventsDoesNoHarm) {
  const RankTrace none{1, "n1", "n1", {}};
  const auto trace = json::parse(merged_trace({trace_of(0, "n0", {}), none}));
  EXPECT_EQ(trace["otherData"]["clocks"], "unknown");
  EXPECT_EQ(ends_in(trace).size(), 1U);
  EXPECT_TRUE(json::accept(merged_trace({})));
  EXPECT_TRUE(json::accept(merged_trace({none})));
}

TEST(MergedTrace, SurvivesTheWayToAnotherRank) {
  auto sent = trace_of(7, "n\xffx", {5, 1e-4});
  const auto received = parse_trace(to_text(sent));
  EXPECT_EQ(received.rank, 7);
  EXPECT_EQ(received.node, "n\xEF\xBF\xBDx") << "what is not UTF-8 is replaced";
  ASSERT_EQ(received.events.size(), sent.events.size());
  EXPECT_EQ(received.events[1].name, "bucket 0");
  EXPECT_TRUE(received.events[1].communication);
  EXPECT_EQ(received.events[1].time.begin, sent.events[1].time.begin);
  EXPECT_THROW(parse_trace("{\"rank\": 1}"), RuntimeError);
  EXPECT_THROW(parse_trace("nothing"), RuntimeError);
  EXPECT_THROW(parse_trace("{\"rank\": 1, \"node\": \"\", \"clock\": \"\", \"events\": [[1]]}"),
               RuntimeError);
}

TEST(MergedTrace, SixtyFourRanksFitIntoTwentyMegabytes) {
  std::vector<RankTrace> traces;
  for (int rank = 0; rank < 64; ++rank) {
    auto trace = trace_of(rank, "node" + std::to_string(rank / 8), {double(rank / 8), 0});
    // As many events as a model with 30 buckets has in a step.
    const auto events = trace.events;
    for (int i = 0; i < 10; ++i)
      trace.events.insert(trace.events.end(), events.begin(), events.end());
    traces.push_back(std::move(trace));
  }
  EXPECT_LT(merged_trace(traces).size(), 20e6);
}

TEST(TracedRanks, AreAllOfFewAndTheRemarkableOfMany) {
  EXPECT_THAT(traced_ranks({1, 2, 3}, {"a", "a", "b"}, 3), ElementsAre(0, 1, 2));
  std::vector<double> waiting(100, 5.0);
  std::vector<std::string> nodes;
  for (int rank = 0; rank < 100; ++rank) nodes.push_back("n" + std::to_string(rank / 50));
  waiting[70] = 0.5;  // the one that is waited for
  waiting[30] = 9;
  const auto chosen = traced_ranks(waiting, nodes, 8);
  EXPECT_THAT(chosen, ::testing::IsSupersetOf({0, 30, 50, 70}));
  EXPECT_LE(chosen.size(), 8U);
  EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
}

}  // namespace
}  // namespace ddp::profile
