// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/errors.h"

namespace ddp::pipeline {
namespace {

using enum OperationKind;

constexpr std::array kScheduleNames = {
    std::pair{Schedule::gpipe, std::string_view("gpipe")},
    std::pair{Schedule::one_f_one_b, std::string_view("1f1b")},
    std::pair{Schedule::interleaved, std::string_view("interleaved")},
    std::pair{Schedule::zb_h1, std::string_view("zb-h1")},
};

void require_positive(const Layout& layout) {
  if (layout.ranks >= 1 && layout.micro_batches >= 1 && layout.stages_per_rank >= 1) return;
  throw UsageError(
      fmt::format("a pipeline of {} ranks with {} stages each and {} micro-batches is not "
                  "possible; each number "
                  "must be at least 1",
                  layout.ranks, layout.stages_per_rank, layout.micro_batches));
}

void require_rank(const Layout& layout, int rank) {
  if (rank >= 0 && rank < layout.ranks) return;
  throw UsageError(fmt::format("a pipeline of {} ranks has no rank {}; ranks are counted from 0",
                               layout.ranks, rank));
}

std::vector<Operation> gpipe(const Layout& layout, int rank) {
  std::vector<Operation> table;
  for (const auto kind : {forward, backward}) {
    for (int i = 0; i < layout.micro_batches; ++i) table.push_back({kind, rank, i});
  }
  return table;
}

// The first forwards of a rank, before its first backward.
int warm_up(Schedule schedule, const Layout& layout, int rank) {
  const int behind = layout.ranks - 1 - rank;
  if (schedule == Schedule::interleaved) {
    const int all = layout.micro_batches * layout.stages_per_rank;
    return std::min(all, (layout.stages_per_rank - 1) * layout.ranks + 2 * behind);
  }
  return std::min(layout.micro_batches, behind);
}

// `forwards` and `backwards` take turns after the first `warm_up` forwards.
std::vector<Operation> take_turns(const std::vector<Operation>& forwards,
                                  const std::vector<Operation>& backwards, int warm_up) {
  std::vector<Operation> table;
  std::size_t back = 0;
  for (std::size_t i = 0; i < forwards.size(); ++i) {
    table.push_back(forwards[i]);
    if (i >= static_cast<std::size_t>(warm_up)) table.push_back(backwards[back++]);
  }
  while (back < backwards.size()) table.push_back(backwards[back++]);
  return table;
}

// The stages of a rank take turns after `ranks` micro-batches each.
Operation interleaved_forward(const Layout& layout, int rank, int k) {
  const int p = layout.ranks;
  const int turn = p * layout.stages_per_rank;
  return {forward, rank + k % turn / p * p, k / turn * p + k % p};
}

Operation interleaved_backward(const Layout& layout, int rank, int k) {
  const Operation mirrored = interleaved_forward(layout, rank, k);
  return {backward, 2 * rank + (layout.stages_per_rank - 1) * layout.ranks - mirrored.stage,
          mirrored.micro_batch};
}

std::vector<Operation> one_f_one_b(Schedule schedule, const Layout& layout, int rank) {
  std::vector<Operation> forwards;
  std::vector<Operation> backwards;
  for (int k = 0; k < layout.micro_batches * layout.stages_per_rank; ++k) {
    forwards.push_back(interleaved_forward(layout, rank, k));
    backwards.push_back(interleaved_backward(layout, rank, k));
  }
  return take_turns(forwards, backwards, warm_up(schedule, layout, rank));
}

// Weight gradients come `rank` input gradients later than they could.
std::vector<Operation> zb_h1(const Layout& layout, int rank) {
  std::vector<Operation> table;
  int next_weights = 0;
  for (const auto& operation : one_f_one_b(Schedule::one_f_one_b, layout, rank)) {
    if (operation.kind == forward) {
      table.push_back(operation);
      continue;
    }
    table.push_back({input_gradient, rank, operation.micro_batch});
    if (operation.micro_batch >= rank) table.push_back({weight_gradient, rank, next_weights++});
  }
  while (next_weights < layout.micro_batches) {
    table.push_back({weight_gradient, rank, next_weights++});
  }
  return table;
}

}  // namespace

Schedule parse_schedule(std::string_view name) {
  std::string known;
  for (const auto& [schedule, its_name] : kScheduleNames) {
    if (name == its_name) return schedule;
    known += known.empty() ? "" : ", ";
    known += its_name;
  }
  throw UsageError(
      fmt::format("there is no pipeline schedule '{}'; choose one of {}", name, known));
}

std::string_view to_string(Schedule schedule) {
  return kScheduleNames.at(static_cast<std::size_t>(schedule)).second;
}

std::string to_string(const Operation& operation) {
  constexpr std::string_view kLetters = "FBIW";
  return fmt::format("{}{}.{}", kLetters[static_cast<std::size_t>(operation.kind)], operation.stage,
                     operation.micro_batch);
}

void require_possible(Schedule schedule, const Layout& layout) {
  require_positive(layout);
  if (schedule != Schedule::interleaved && layout.stages_per_rank > 1) {
    throw UsageError(fmt::format(
        "the schedule {} has one stage per rank, but {} ranks have {} stages; use the schedule "
        "interleaved, or {} ranks",
        to_string(schedule), layout.ranks, layout.stages(), layout.stages()));
  }
  if (schedule == Schedule::interleaved && layout.micro_batches % layout.ranks != 0) {
    throw UsageError(fmt::format(
        "the schedule interleaved needs a multiple of {} micro-batches on {} ranks, but the step "
        "has {}; use {}, or another schedule",
        layout.ranks, layout.ranks, layout.micro_batches,
        (layout.micro_batches / layout.ranks + 1) * layout.ranks));
  }
}

std::vector<Operation> operations(Schedule schedule, const Layout& layout, int rank) {
  require_possible(schedule, layout);
  require_rank(layout, rank);
  if (schedule == Schedule::gpipe) return gpipe(layout, rank);
  if (schedule == Schedule::zb_h1) return zb_h1(layout, rank);
  return one_f_one_b(schedule, layout, rank);
}

std::vector<Operation> forward_operations(const Layout& layout, int rank) {
  require_positive(layout);
  require_rank(layout, rank);
  std::vector<Operation> table;
  for (int first = 0; first < layout.micro_batches; first += layout.ranks) {
    const int end = std::min(first + layout.ranks, layout.micro_batches);
    for (int stage = rank; stage < layout.stages(); stage += layout.ranks) {
      for (int i = first; i < end; ++i) table.push_back({forward, stage, i});
    }
  }
  return table;
}

int max_kept(Schedule schedule, const Layout& layout, int rank) {
  require_possible(schedule, layout);
  require_rank(layout, rank);
  const int m = layout.micro_batches;
  if (schedule == Schedule::gpipe) return m;
  if (schedule == Schedule::zb_h1) return std::min(m, layout.ranks);
  return std::min(m * layout.stages_per_rank, warm_up(schedule, layout, rank) + 1);
}

}  // namespace ddp::pipeline
