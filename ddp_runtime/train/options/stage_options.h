// SPDX-License-Identifier: Apache-2.0
// How ranks share a model as the stages of pipelines.
//
// Note [Places in pipelines]
// Rank r of pipelines of p ranks has place r % p in pipeline r / p: the ranks of a pipeline follow
// each other, and so share a node or a switch if they can. They exchange activations for every
// micro-batch, and wait for them; the ranks with the same stages, which are p apart, average
// their gradients once per step, while other stages still work.
#pragma once

#include <string>

#include "ddp_runtime/pipeline/schedule.h"

namespace ddp::train {

struct StageOptions {
  int ranks = 1;  // of one pipeline; 1: no pipeline
  pipeline::Schedule schedule = pipeline::Schedule::one_f_one_b;
  int chunks = 1;                      // stages per rank
  std::string balance = "parameters";  // parameters | time | the pieces of each stage: "3,4,4,3"

  bool wanted() const noexcept { return ranks > 1; }
  int count() const noexcept { return ranks * chunks; }  // of all stages
  // See Note [Places in pipelines].
  int replica(int rank) const noexcept { return rank / ranks; }
  int place(int rank) const noexcept { return rank % ranks; }
  // How many ranks of a run, or pipelines, have samples of their own.
  int replicas(int all_ranks) const noexcept { return all_ranks / ranks; }
};

}  // namespace ddp::train
