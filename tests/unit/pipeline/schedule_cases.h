// SPDX-License-Identifier: Apache-2.0
// All small pipelines that a schedule can have.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "ddp_runtime/pipeline/schedule.h"

namespace ddp::pipeline::test {

inline constexpr int kMaxRanks = 6;
inline constexpr int kMaxMicroBatches = 12;
inline constexpr int kMaxStagesPerRank = 3;

struct ScheduleCase {
  Schedule schedule;
  Layout layout;

  std::string text() const {
    return fmt::format("{} p={} m={} v={}", to_string(schedule), layout.ranks, layout.micro_batches,
                       layout.stages_per_rank);
  }
};

inline std::vector<ScheduleCase> all_cases() {
  std::vector<ScheduleCase> cases;
  for (const auto schedule :
       {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zb_h1}) {
    const bool interleaved = schedule == Schedule::interleaved;
    for (int p = 1; p <= kMaxRanks; ++p) {
      for (int m = 1; m <= kMaxMicroBatches; ++m) {
        for (int v = 1; v <= (interleaved ? kMaxStagesPerRank : 1); ++v) {
          if (!interleaved || m % p == 0) cases.push_back({schedule, {p, m, v}});
        }
      }
    }
  }
  return cases;
}

inline std::vector<std::vector<Operation>> tables_of(const ScheduleCase& one) {
  std::vector<std::vector<Operation>> tables;
  for (int rank = 0; rank < one.layout.ranks; ++rank) {
    tables.push_back(operations(one.schedule, one.layout, rank));
  }
  return tables;
}

}  // namespace ddp::pipeline::test
