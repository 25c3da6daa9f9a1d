// SPDX-License-Identifier: Apache-2.0
// Options of local steps: ranks that step alone, and average their parameters now and then.
#pragma once

#include <cstdint>
#include <string>

#include "ddp_runtime/parallel/buckets/bucket_plan.h"

namespace ddp {

// What happens to the parameters at an average.
enum class Outer : std::uint8_t {
  average,   // they become the mean over the ranks
  nesterov,  // DiLoCo: an SGD step with Nesterov momentum from where the ranks began, towards it
};

// Of Outer::nesterov, see outer_step().
struct OuterOptions {
  Outer kind = Outer::average;
  double learning_rate = 0.7;
  double momentum = 0.9;
};

// Which ranks average their gradients in a local step.
enum class LocalWithin : std::uint8_t {
  rank,  // none: each rank steps alone
  node,  // those of each machine
};

struct LocalStepsOptions {
  std::int64_t every = 10;  // parameters are averaged after each `every` local steps
  // Number of steps at the beginning in which all ranks average their gradients, as without local
  // steps (post-local SGD).
  std::int64_t from = 0;
  LocalWithin within = LocalWithin::rank;
  OuterOptions outer = {};
  BucketLimits buckets = {};  // of an average
  // The ranks compare a checksum of their parameters after an average, at most once in this number
  // of steps; 0: never. See same_parameters.h.
  std::int64_t check_parameters_every = 100;
};

// Throw UsageError listing the valid values.
Outer parse_outer(const std::string& name);
LocalWithin parse_local_within(const std::string& name);
std::string outer_name(Outer outer);
std::string local_within_name(LocalWithin within);

// Throws UsageError naming an option with a value that is out of range.
void require_valid(const LocalStepsOptions& options);

}  // namespace ddp
