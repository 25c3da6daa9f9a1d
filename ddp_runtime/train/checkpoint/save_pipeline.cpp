// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/save_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/deadline.h"
#include "base/errors.h"
#include "ddp_runtime/train/checkpoint/local/local_adoption.h"
#include "ddp_runtime/train/ranks/rank_agreement.h"

namespace ddp::train {
namespace {

std::uint64_t count_ranks_on(const std::string& host, const std::vector<std::string>& hosts) {
  return static_cast<std::uint64_t>(std::count(hosts.begin(), hosts.end(), host));
}

SaveResult not_begun(std::uint64_t step, const std::string& problem) {
  SaveResult result;
  result.step = step;
  result.problem = problem;
  return result;
}

}  // namespace

SavePipeline::SavePipeline(comm::Group& group, const TrainingState& state,
                           ckpt::CheckpointDirectory& directory, ckpt::Retention& retention,
                           const CheckpointOptions& options, const ckpt::OwnerTag& owner,
                           const std::vector<std::string>& hosts,
                           std::function<bool(std::uint64_t)> in_use, SaveEvents events,
                           const RunLog& log)
    : group_(group),
      directory_(directory),
      options_(options),
      owner_(owner),
      events_(std::move(events)),
      log_(log),
      leads_node_(leader_of(group.rank(), hosts) == group.rank()),
      direct_(group, state, directory, retention, options, count_ranks_on(owner.host, hosts),
              std::move(in_use), log) {
  if (options.local_directory.empty()) return;
  require_local_directory(group, options.local_directory, hosts);
  local_.emplace(group, state, options, owner, count_ranks_on(owner.host, hosts), leads_node_, log);
}

void SavePipeline::adopt_local_saves() {
  if (!local_) return;
  const auto problem =
      adopt_saves(group_, local_stores(group_, options_), owner_, leads_node_, directory_, log_);
  if (problem.empty()) return;
  throw RuntimeError(fmt::format(
      "a checkpoint on the nodes' own disks could not be copied to {}: {}; make room there and "
      "start again on the same nodes, or leave out --checkpoint-local to continue without it",
      options_.directory.string(), problem));
}

void SavePipeline::remove_local_saves(std::uint64_t step) {
  if (!local_) return;
  train::remove_local_saves(group_, options_, leads_node_, step);
}

void SavePipeline::forget_local_saves() {
  if (!local_) return;
  const auto problem =
      problem_on_leader(group_, [this] { ckpt::remove_local_store_id(options_.directory); });
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
  poll(group_.all_reduce_value(direct_.writing() ? 1 : 0, comm::ReduceOp::max) != 0);
}

void SavePipeline::start(std::uint64_t step, ckpt::CheckpointInfo info,
                         const std::vector<StateArray>& arrays) {
  const auto begin = [&] { directory_.begin(step, owner_); };
  const auto problem = locally() ? std::string() : problem_on_leader(group_, begin);
  if (!problem.empty()) {
    if (group_.rank() == 0) events_.over(not_begun(step, problem), 0);
    return;
  }
  const ckpt::SaveId mine{step, owner_};
  const auto id = ckpt::SaveId::from_json(
      nlohmann::json::parse(group_.broadcast_text(mine.to_json().dump(), 0)));
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
  if (group_.rank() == 0) events_.staged(staging_seconds_);
}

// On all ranks.
void SavePipeline::stop_staging(const std::string& problem) {
  local_failed_ = true;
  if (group_.rank() != 0) return;
  log_.warning(fmt::format("node-local saves to {} stop, and checkpoints are saved to {} alone: {}",
                           options_.local_directory.string(), options_.directory.string(),
                           problem));
}

// Collective, when no save is in progress there: begins to copy the one that waits, if one does.
void SavePipeline::begin_copy() {
  if (!local_ || local_->waits() == nullptr) return;
  const auto step = local_->waiting_step();
  copied_staging_seconds_ = staging_seconds_;
  direct_began_ = std::chrono::steady_clock::now();
  const auto problem = local_->begin_copy(directory_, direct_);
  if (!problem.empty() && group_.rank() == 0) events_.over(not_begun(step, problem), 0);
}

// On rank 0, if there is a result.
void SavePipeline::report(const std::optional<SaveResult>& result) {
  if (result) events_.over(*result, copied_staging_seconds_ + seconds_since(direct_began_));
}

}  // namespace ddp::train
