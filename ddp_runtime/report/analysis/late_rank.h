// SPDX-License-Identifier: Apache-2.0
// Reasons why ranks wait for each other: they share CPUs, or one rank is late. No side effects.
//
// Note [Late]
// The rank that waits least is the one that the others wait for (profile/collective_times.h). It is
// reported as late only if it is late consistently: by more than a fixed share of the step, by more
// than the spread of the other ranks and, if the run has counted late steps, in more steps than
// chance would explain. Ranks that take turns being slow are not reported. Comparing a late rank's
// phases with those of the others shows the phase in which it falls behind.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/report/record/run_record.h"

namespace ddp::report {

// More ranks, or more threads, than CPUs available to them.
struct SharedProcessors {
  std::string node;
  int ranks = 0;
  int processors = 0;
  int threads = 0;        // total of these ranks
  bool by_ranks = false;  // false: each rank has a CPU, but not every thread
};

struct LateRanks {
  std::vector<int> ranks;
  std::string node;            // node of all late ranks; empty if they are on several
  double seconds = 0;          // time per step by which they are later than the others
  std::optional<Phase> phase;  // the phase in which they lose most of that time
  double phase_seconds = 0;
};

struct Cause {
  std::optional<SharedProcessors> shared;
  std::optional<LateRanks> late;
};

Cause find_cause(const RunRecord& run);

// "rank 7 on n7", "ranks 1 and 3", "9 ranks".
std::string names_of(const LateRanks& late);

// One sentence each: "4 ranks share 2 CPUs on node1."
std::string sentence_of(const SharedProcessors& shared);
std::string sentence_of(const LateRanks& late);
// Advice for removing the cause.
std::string advice_against(const SharedProcessors& shared);
std::string advice_against(const LateRanks& late);

// Both sentences, CPUs first; empty if there is no cause.
std::string sentences_of(const Cause& cause);
// The advice for the first cause; empty if there is none.
std::string advice_against(const Cause& cause);
nlohmann::json json_of(const Cause& cause);

}  // namespace ddp::report
