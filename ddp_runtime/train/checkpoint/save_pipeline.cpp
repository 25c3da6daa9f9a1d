// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/save_pipeline.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "base/deadline.h"
#include "base/errors.h"
#include "ddp_runtime/train/checkpoint/local/local_adoption.h"
#include "ddp_runtime/train/ranks/rank_agreement.h"

namespace ddp::train {
namespace {

SaveResult not_begun(std::uint64_t step, const std::string& problem) {
  SaveResult result;
  result.step = step;
  result.problem = problem;
  return result;
}

}  // namespace

SavePipeline::SavePipeline(const SaveContext& context, const SaveTarget& target, SaveEvents events)
    : context_(context),
      directory_(target.directory),
      events_(std::move(events)),
      direct_(context, target) {
  if (context.options.local_directory.empty()) return;
  require_local_directory(context);
  local_.emplace(context);
}

void SavePipeline::adopt_local_saves() {
  if (!local_) return;
  const auto problem = adopt_saves(context_, local_stores(context_), directory_);
  if (problem.empty()) return;
  throw RuntimeError(fmt::format(
      "a checkpoint on the nodes' own disks could not be copied to {}: {}; make room there and "
      "start again on the same nodes, or leave out --checkpoint-local to continue without it",
      context_.options.directory.string(), problem));
}

void SavePipeline::remove_local_saves(std::uint64_t step) {
  if (!local_) return;
  train::remove_local_saves(context_, step);
}

void SavePipeline::forget_local_saves() {
  if (!local_) return;
  const auto problem = problem_on_leader(
      context_.group, [this] { ckpt::remove_local_store_id(context_.options.directory); });
  if (!problem.empty()) throw RuntimeError(problem);
}

void SavePipeline::make_room(std::int64_t durable) {
  if (!locally()) return drain();
  if (!local_->is_open()) {
    const auto problem = local_->open();
    if (!problem.empty()) {
      stop_staging(problem);
      return drain();
    }
  }
  finish_staging();
  local_->remove_needless(durable);
  // No rank stages the next save before all have removed what they no longer need.
  poll(context_.group.all_reduce_value(direct_.writing() ? 1 : 0, comm::ReduceOp::max) != 0);
}

void SavePipeline::start(std::uint64_t step, ckpt::CheckpointInfo info,
                         const std::vector<StateArray>& arrays) {
  const auto begin = [&] { directory_.begin(step, context_.owner); };
  const auto problem = locally() ? std::string() : problem_on_leader(context_.group, begin);
  if (!problem.empty()) {
    if (context_.leads()) events_.over(not_begun(step, problem), 0);
    return;
  }
  const ckpt::SaveId mine{step, context_.owner};
  const auto id = ckpt::SaveId::from_json(
      nlohmann::json::parse(context_.group.broadcast_text(mine.to_json().dump(), 0)));
  if (locally()) {
    local_->start(id, std::move(info), arrays);
  } else {
    direct_began_ = std::chrono::steady_clock::now();
    copied_staging_seconds_ = 0;
    direct_.start(id, std::move(info), arrays);
  }
}

bool SavePipeline::busy() const noexcept {
  return locally() ? local_->writing() : direct_.in_progress();
}

bool SavePipeline::writing() const noexcept {
  return direct_.writing() || (local_ && local_->writing());
}

void SavePipeline::poll(bool anyone_writing) {
  if (!anyone_writing) finish_staging();
  const bool in_flight = direct_.shards_in_flight();
  report(direct_.poll(anyone_writing));
  // Nothing is in progress any more: without shards in flight, only rank 0 could still be writing.
  if (!anyone_writing && !in_flight) begin_copy();
}

void SavePipeline::drain() {
  finish_staging();
  report(direct_.drain());
  begin_copy();
  report(direct_.drain());
}

void SavePipeline::drop_before(std::uint64_t step) {
  finish_staging();
  if (!local_ || local_->waits() == nullptr || local_->waits()->permanent) return;
  if (local_->waiting_step() != step) local_->drop_waiting();
}

void SavePipeline::remove_needless(std::int64_t durable) {
  if (local_) local_->remove_needless(durable);
}

// Collective. A save that is kept for good is copied before a later one takes its place.
void SavePipeline::finish_staging() {
  if (!local_ || !local_->staging()) return;
  if (local_->waits() != nullptr && local_->waits()->permanent) {
    report(direct_.drain());
    begin_copy();
  }
  const auto staged = local_->finish_staging();
  staging_seconds_ = staged.seconds;
  if (!staged.problem.empty()) return stop_staging(staged.problem);
  if (context_.leads()) events_.staged(staging_seconds_);
}

// On all ranks.
void SavePipeline::stop_staging(const std::string& problem) {
  local_failed_ = true;
  if (!context_.leads()) return;
  context_.log.warning(fmt::format(
      "node-local saves to {} stop, and checkpoints are saved to {} alone: {}",
      context_.options.local_directory.string(), context_.options.directory.string(), problem));
}

// Collective, when no save is in progress there: begins to copy the one that waits, if one does.
void SavePipeline::begin_copy() {
  if (!local_ || local_->waits() == nullptr) return;
  const auto step = local_->waiting_step();
  copied_staging_seconds_ = staging_seconds_;
  direct_began_ = std::chrono::steady_clock::now();
  const auto problem = local_->begin_copy(directory_, direct_);
  if (!problem.empty() && context_.leads()) events_.over(not_begun(step, problem), 0);
}

// On rank 0, if there is a result.
void SavePipeline::report(const std::optional<SaveResult>& result) {
  if (result) events_.over(*result, copied_staging_seconds_ + seconds_since(direct_began_));
}

}  // namespace ddp::train
