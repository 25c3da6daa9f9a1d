// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/replica/step_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/comm/failure/hang_analysis.h"
#include "ddp_runtime/comm/group/group_name.h"

namespace ddp {
namespace {

// Mixes well enough that two different steps do not collide by accident (SplitMix64).
std::uint64_t mix(std::uint64_t hash, std::int64_t value) {
  hash += 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(value);
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
  return hash ^ (hash >> 31);
}

std::int64_t word_of(const StepFacts& facts, std::uint64_t history) {
  std::uint64_t hash = mix(mix(mix(history, facts.step), facts.micro_batches), facts.tag);
  if (facts.buffers != 0) hash = mix(hash, facts.buffers);
  for (const std::size_t unit : facts.gathers) hash = mix(hash, static_cast<std::int64_t>(unit));
  return static_cast<std::int64_t>(hash >> 1);  // so that its negative is representable
}

std::string describe(const StepFacts& facts) {
  return fmt::format("step {} with {} (tag {})", facts.step,
                     counted(facts.micro_batches, "micro-batch", "es"), facts.tag);
}

// `texts` begin with this mark on ranks whose loss is not finite.
constexpr char kInfinite = '!';

void throw_if_infinite(const comm::Group& group, const std::vector<std::string>& texts,
                       std::int64_t step) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].front() == kInfinite) ranks.push_back(group.world_rank(static_cast<int>(rank)));
  }
  if (ranks.empty()) return;
  throw RuntimeError(fmt::format(
      "the loss is not finite on {} in step {}: look at that rank's data, lower the learning rate, "
      "or clip the gradients",
      comm::describe_ranks(ranks), step));
}

}  // namespace

void StepAgreement::ask(const StepFacts& facts) {
  facts_ = facts;
  history_ = group_.call_history();
  // The maximum of the words and of their negatives: equal in magnitude only if all words are
  // equal.
  const std::int64_t word = word_of(facts, history_);
  *words_ = {word, -word, facts.loss_is_finite ? 0 : 1, facts.parameters, -facts.parameters};
  answer_ = group_.all_reduce(comm::buffer_of(std::span<std::int64_t>(*words_)),
                              comm::ReduceOp::max, "step agreement", words_);
  asked_ = true;
}

// Including a loss that is not finite. See ask() for the words.
bool StepAgreement::steps_differ() const noexcept {
  const auto& words = *words_;
  return words[0] != -words[1] || words[2] != 0;
}

bool StepAgreement::parameters_differ() const noexcept {
  const auto& words = *words_;
  return words[3] != -words[4];
}

bool StepAgreement::holds() {
  if (!asked_) return true;
  answer_.wait();
  return !steps_differ() && !parameters_differ();
}

bool StepAgreement::check() {
  if (!asked_) return true;
  asked_ = false;
  answer_.wait();
  if (steps_differ()) explain();
  return !parameters_differ();
}

void StepAgreement::require_finite_loss(std::int64_t step, bool finite) {
  if (group_.all_reduce_value<std::int32_t>(finite ? 0 : 1, comm::ReduceOp::max) == 0) return;
  throw_if_infinite(group_, group_.all_gather_text(finite ? "." : std::string(1, kInfinite)), step);
}

void StepAgreement::explain() {
  const auto all = group_.all_gather_text((facts_.loss_is_finite ? "" : std::string(1, kInfinite)) +
                                          describe(facts_));
  throw_if_infinite(group_, all, facts_.loss_step);
  if (std::all_of(all.begin(), all.end(), [&](const auto& text) { return text == all[0]; })) {
    explain_gathers();
    explain_histories();
  }
  std::size_t other = 1;
  while (other < all.size() && all[other] == all[0]) ++other;
  throw RuntimeError(fmt::format(
      "the ranks are not in the same step: rank {} is in {}, rank {} in "
      "{}; check whether one of them skipped a step",
      group_.world_rank(0), all[0], group_.world_rank(static_cast<int>(other)), all[other]));
}

// Throws if forward has not gathered the same units on all ranks.
void StepAgreement::explain_gathers() {
  if (!facts_.gathered) return;
  const auto all = group_.all_gather_text(facts_.gathered());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto first = split(all[0], '\n');
    const auto other = split(all[rank], '\n');
    std::size_t call = 0;
    while (call < std::min(first.size(), other.size()) && first[call] == other[call]) ++call;
    const auto name = [&](const auto& calls) {
      return call < calls.size() ? fmt::format("'{}'", calls[call]) : std::string("none");
    };
    throw RuntimeError(fmt::format(
        "the ranks call different units in step {}: unit number {} is {} on rank {}, and {} on "
        "rank "
        "{}; forward may leave out units on some ranks, but must call them in the same order on "
        "all",
        facts_.step, call + 1, name(first), group_.world_rank(0), name(other),
        group_.world_rank(static_cast<int>(rank))));
  }
}

void StepAgreement::explain_histories() {
  std::vector<comm::RankStatus> statuses;
  for (const auto& text :
       group_.all_gather_text(to_json(group_.flight_recorder().snapshot()).dump())) {
    statuses.push_back({group_.world_rank(static_cast<int>(statuses.size())), "",
                        comm::snapshot_from_json(nlohmann::json::parse(text))});
  }
  if (const auto found = comm::find_disagreement(statuses)) throw RuntimeError(found->text);
  throw RuntimeError(fmt::format(
      "the ranks called different collectives before step {}, too long ago to name them: all ranks "
      "must run the same steps in the same order",
      facts_.step));
}

}  // namespace ddp
