// Why ranks wait for each other: processors that they share, or a rank that is late. Pure.
//
// Note [Late]
// The rank with the least waiting is the one that the others wait for (profile/collective_times.h).
// It is called late only if it is so throughout: beyond a share of the step, beyond the spread of
// the other ranks, and, where the run has counted, in more steps than chance gives. Ranks that are
// slow in turns are nobody's fault. A late rank's phases compared with the others' say in which it
// falls behind.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/report/run_record.h"

namespace ddp::report {

// More ranks, or more threads, than processors that they may use.
struct SharedProcessors {
  std::string node;
  int ranks = 0;
  int processors = 0;
  int threads = 0;        // of those ranks together
  bool by_ranks = false;  // else each rank has a processor, but not each thread
};

struct LateRanks {
  std::vector<int> ranks;
  std::string node;            // of all of them; empty if they are on several
  double seconds = 0;          // by which they come later than the others, in a step
  std::optional<Phase> phase;  // in which they lose most of that
  double phase_seconds = 0;
};

struct Cause {
  std::optional<SharedProcessors> shared;
  std::optional<LateRanks> late;
};

Cause find_cause(const RunRecord& run);

// One sentence each: "4 ranks share 2 processors on node1."
std::string sentence_of(const SharedProcessors& shared);
std::string sentence_of(const LateRanks& late);
// What to do about it.
std::string advice_against(const SharedProcessors& shared);
std::string advice_against(const LateRanks& late);

// Both, the processors first; empty without a cause.
std::string sentences_of(const Cause& cause);
// The first cause's; empty without one.
std::string advice_against(const Cause& cause);
nlohmann::json json_of(const Cause& cause);

}  // namespace ddp::report
