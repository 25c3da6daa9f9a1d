// SPDX-License-Identifier: Apache-2.0
// The order in which each rank of a pipeline runs forward and backward of its stages on the
// micro-batches of a step. Pure tables.
//
// Rank r of p has stages r, r + p, r + 2 p and so on. Backward of a stage runs in the order of the
// micro-batches with every schedule, so that gradients add up as in one process.
//
//   gpipe        all forwards, then all backwards: every micro-batch is kept (Huang et al. 2019,
//                with backwards in ascending order)
//   one_f_one_b  forward and backward take turns, so that rank r keeps at most p - r micro-batches;
//                the same idle time as gpipe (Narayanan et al. 2019)
//   interleaved  several stages per rank and turns among them: less idle time, more messages, more
//                kept (Narayanan et al. 2021)
//   zb_h1        backward in two parts, of which that of the weights fills idle time (Qi et al.
//                2023)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::pipeline {

enum class Schedule : std::uint8_t { gpipe, one_f_one_b, interleaved, zb_h1 };

// "gpipe", "1f1b", "interleaved" and "zb-h1". Throws UsageError with the list of names.
Schedule parse_schedule(std::string_view name);
std::string_view to_string(Schedule schedule);

// How a step is divided.
struct Layout {
  int ranks = 1;
  int micro_batches = 1;
  int stages_per_rank = 1;

  int stages() const noexcept { return ranks * stages_per_rank; }
};

enum class OperationKind : std::uint8_t { forward, backward, input_gradient, weight_gradient };

struct Operation {
  OperationKind kind = OperationKind::forward;
  int stage = 0;
  int micro_batch = 0;

  friend bool operator==(const Operation&, const Operation&) = default;
  // Whether it produces the gradient of the stage's input.
  bool goes_back() const noexcept {
    return kind == OperationKind::backward || kind == OperationKind::input_gradient;
  }
};

// "F2.1" is forward of stage 2 on micro-batch 1; the others begin with B, I and W.
std::string to_string(const Operation& operation);

inline int rank_of_stage(int stage, int ranks) noexcept {
  return stage % ranks;
}

// Throws UsageError if the schedule cannot have this layout: all but `interleaved` have one stage
// per rank, and `interleaved` needs a multiple of `ranks` as number of micro-batches. There may be
// fewer micro-batches than stages.
void require_possible(Schedule schedule, const Layout& layout);

// The operations of a rank in their order. Throws UsageError as above, or if there is no such rank.
std::vector<Operation> operations(Schedule schedule, const Layout& layout, int rank);

// Forward without backward, for evaluation. Any number of micro-batches and of stages per rank.
std::vector<Operation> forward_operations(const Layout& layout, int rank);

// How many pairs of a stage and a micro-batch a rank keeps at once: their activations are in memory
// from forward until the last operation.
int max_kept(Schedule schedule, const Layout& layout, int rank);

}  // namespace ddp::pipeline
