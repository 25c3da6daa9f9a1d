// SPDX-License-Identifier: Apache-2.0
// The tables of operations: golden vectors, and what must hold for every pipeline.
#include "ddp_runtime/pipeline/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/error_of.h"
#include "tests/unit/pipeline/schedule_cases.h"

namespace ddp::pipeline::test {
namespace {

using testing::HasSubstr;
using enum OperationKind;
using enum Schedule;

// Without the stage if ranks have only one.
std::string text_of(const std::vector<Operation>& table, bool with_stage) {
  std::string text;
  for (const auto& operation : table) {
    auto word = to_string(operation);
    if (!with_stage) word = word.substr(0, 1) + word.substr(word.find('.') + 1);
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

struct Golden {
  Schedule schedule;
  Layout layout;
  int rank;
  const char* table;
};

// 1F1B is that of DeepSpeed's TrainSchedule, interleaved that of torch.distributed.pipelining.
const std::vector<Golden> kGolden = {
    {gpipe, {2, 4}, 0, "F0 F1 F2 F3 B0 B1 B2 B3"},
    {gpipe, {2, 4}, 1, "F0 F1 F2 F3 B0 B1 B2 B3"},
    {one_f_one_b, {2, 4}, 0, "F0 F1 B0 F2 B1 F3 B2 B3"},
    {one_f_one_b, {2, 4}, 1, "F0 B0 F1 B1 F2 B2 F3 B3"},
    {one_f_one_b, {4, 4}, 0, "F0 F1 F2 F3 B0 B1 B2 B3"},
    {one_f_one_b, {4, 4}, 1, "F0 F1 F2 B0 F3 B1 B2 B3"},
    {one_f_one_b, {4, 4}, 2, "F0 F1 B0 F2 B1 F3 B2 B3"},
    {one_f_one_b, {4, 4}, 3, "F0 B0 F1 B1 F2 B2 F3 B3"},
    {one_f_one_b, {4, 8}, 0, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"},
    {one_f_one_b, {4, 8}, 3, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"},
    {one_f_one_b, {4, 2}, 0, "F0 F1 B0 B1"},
    {one_f_one_b, {4, 2}, 1, "F0 F1 B0 B1"},
    {one_f_one_b, {4, 2}, 2, "F0 F1 B0 B1"},
    {one_f_one_b, {4, 2}, 3, "F0 B0 F1 B1"},
    {interleaved, {2, 2, 2}, 0, "F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1"},
    {interleaved, {2, 2, 2}, 1, "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1"},
    {interleaved,
     {2, 4, 2},
     0,
     "F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3"},
    {interleaved,
     {2, 4, 2},
     1,
     "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3"},
    {interleaved,
     {4, 4, 2},
     0,
     "F0.0 F0.1 F0.2 F0.3 F4.0 F4.1 F4.2 F4.3 B4.0 B4.1 B4.2 B4.3 B0.0 B0.1 B0.2 B0.3"},
    {interleaved,
     {4, 4, 2},
     2,
     "F2.0 F2.1 F2.2 F2.3 F6.0 F6.1 F6.2 B6.0 F6.3 B6.1 B6.2 B6.3 B2.0 B2.1 B2.2 B2.3"},
    {interleaved,
     {4, 4, 2},
     3,
     "F3.0 F3.1 F3.2 F3.3 F7.0 B7.0 F7.1 B7.1 F7.2 B7.2 F7.3 B7.3 B3.0 B3.1 B3.2 B3.3"},
    {zb_h1, {2, 4}, 0, "F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3"},
    {zb_h1, {2, 4}, 1, "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3"},
    {zb_h1, {4, 4}, 0, "F0 F1 F2 F3 I0 W0 I1 W1 I2 W2 I3 W3"},
    {zb_h1, {4, 4}, 3, "F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3"},
};

TEST(Schedules, HaveTheTablesOfOthers) {
  for (const auto& golden : kGolden) {
    const auto table = operations(golden.schedule, golden.layout, golden.rank);
    EXPECT_EQ(text_of(table, golden.layout.stages_per_rank > 1), golden.table)
        << to_string(golden.schedule) << " rank " << golden.rank;
  }
}

using StageAndMicroBatch = std::pair<int, int>;

// The micro-batches of each kind and stage, in order.
std::map<std::pair<OperationKind, int>, std::vector<int>> orders_in(
    const std::vector<Operation>& table) {
  std::map<std::pair<OperationKind, int>, std::vector<int>> orders;
  for (const auto& operation : table) {
    orders[{operation.kind, operation.stage}].push_back(operation.micro_batch);
  }
  return orders;
}

TEST(Schedules, RunEachStageOnEachMicroBatchOnceAndInOrder) {
  for (const auto& one : all_cases()) {
    std::vector<int> ascending;
    for (int i = 0; i < one.layout.micro_batches; ++i) ascending.push_back(i);
    const std::vector<OperationKind> kinds =
        one.schedule == zb_h1 ? std::vector{forward, input_gradient, weight_gradient}
                              : std::vector{forward, backward};
    const auto tables = tables_of(one);
    for (int rank = 0; rank < one.layout.ranks; ++rank) {
      const auto orders = orders_in(tables[static_cast<std::size_t>(rank)]);
      EXPECT_EQ(orders.size(), kinds.size() * static_cast<std::size_t>(one.layout.stages_per_rank))
          << one.text();
      for (const auto& [which, order] : orders) {
        EXPECT_EQ(rank_of_stage(which.second, one.layout.ranks), rank) << one.text();
        EXPECT_EQ(std::count(kinds.begin(), kinds.end(), which.first), 1) << one.text();
        EXPECT_EQ(order, ascending) << one.text();
      }
    }
  }
}

TEST(Schedules, GoForwardBeforeTheyGoBack) {
  for (const auto& one : all_cases()) {
    for (const auto& table : tables_of(one)) {
      std::set<StageAndMicroBatch> forwards;
      std::set<StageAndMicroBatch> inputs;
      for (const auto& operation : table) {
        const StageAndMicroBatch which{operation.stage, operation.micro_batch};
        if (operation.kind == forward) forwards.insert(which);
        if (operation.goes_back()) {
          EXPECT_TRUE(forwards.contains(which)) << one.text();
          inputs.insert(which);
        }
        if (operation.kind == weight_gradient) {
          EXPECT_TRUE(inputs.contains(which)) << one.text();
        }
      }
    }
  }
}

TEST(Schedules, KeepNoMoreThanTheySay) {
  for (const auto& one : all_cases()) {
    const auto tables = tables_of(one);
    for (int rank = 0; rank < one.layout.ranks; ++rank) {
      int kept = 0;
      int most = 0;
      for (const auto& operation : tables[static_cast<std::size_t>(rank)]) {
        if (operation.kind == forward) most = std::max(most, ++kept);
        if (operation.kind == (one.schedule == zb_h1 ? weight_gradient : backward)) --kept;
      }
      EXPECT_EQ(most, max_kept(one.schedule, one.layout, rank)) << one.text() << " rank " << rank;
    }
  }
}

TEST(Schedules, ForEvaluationRunEachStageOnEachMicroBatchOnce) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      for (int v = 1; v <= kMaxStagesPerRank; ++v) {
        for (int rank = 0; rank < p; ++rank) {
          const auto orders = orders_in(forward_operations({p, m, v}, rank));
          EXPECT_EQ(orders.size(), static_cast<std::size_t>(v));
          for (const auto& [which, order] : orders) {
            EXPECT_EQ(which.first, forward);
            EXPECT_EQ(order.size(), static_cast<std::size_t>(m));
            EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
          }
        }
      }
    }
  }
}

TEST(Schedules, RefuseWhatTheyCannotDo) {
  const auto error = [](Schedule schedule, const Layout& layout, int rank = 0) {
    return error_of([&] { operations(schedule, layout, rank); });
  };
  EXPECT_THAT(
      error(interleaved, {4, 6, 2}),
      HasSubstr("needs a multiple of 4 micro-batches on 4 ranks, but the step has 6; use 8"));
  EXPECT_THAT(error(one_f_one_b, {2, 4, 2}),
              HasSubstr("the schedule 1f1b has one stage per rank, but 2 ranks have 4 stages; use "
                        "the schedule interleaved, or 4 ranks"));
  EXPECT_THAT(error(zb_h1, {2, 4, 2}), HasSubstr("the schedule zb-h1 has one stage per rank"));
  EXPECT_THAT(error(gpipe, {2, 0}), HasSubstr("each number must be at least 1"));
  EXPECT_THAT(error(gpipe, {0, 1}), HasSubstr("each number must be at least 1"));
  EXPECT_THAT(error(gpipe, {2, 1}, 2), HasSubstr("a pipeline of 2 ranks has no rank 2"));
  EXPECT_EQ(error(one_f_one_b, {6, 1}), "") << "fewer micro-batches than stages are allowed";
}

TEST(Schedules, HaveNames) {
  for (const auto schedule : {gpipe, one_f_one_b, interleaved, zb_h1}) {
    EXPECT_EQ(parse_schedule(to_string(schedule)), schedule);
  }
  EXPECT_THAT(
      error_of([] { parse_schedule("2f2b"); }),
      HasSubstr("no pipeline schedule '2f2b'; choose one of gpipe, 1f1b, interleaved, zb-h1"));
}

}  // namespace
}  // namespace ddp::pipeline::test
