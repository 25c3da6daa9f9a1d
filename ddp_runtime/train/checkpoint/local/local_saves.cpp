// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/local/local_saves.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "base/deadline.h"
#include "base/errors.h"
#include "ddp_runtime/train/checkpoint/write/shard_report.h"
#include "ddp_runtime/train/ranks/rank_agreement.h"

namespace ddp::train {

// The thread that stages it accesses `shard` and `problem`; this rank, after it was joined.
struct LocalSaves::Save {
  ckpt::SaveId id;
  ckpt::CheckpointInfo info;
  std::chrono::steady_clock::time_point began;
  std::optional<ckpt::LocalShard> shard;  // this rank's
  std::string problem;
  double seconds = 0;  // until this rank had written
};

void require_local_directory(const SaveContext& context) {
  const auto& directory = context.options.local_directory;
  std::string mine;
  if (!directory.is_absolute()) {
    mine = fmt::format("the directory for node-local saves, {}, must be an absolute path",
                       directory.string());
  } else {
    try {
      ckpt::require_local_directory(directory);
    } catch (const std::exception& e) {
      mine = e.what();
    }
  }
  const auto problem = first_problem(context.group, mine, context.owner.host);
  if (!problem.empty()) throw UsageError(problem);
}

LocalSaves::LocalSaves(const SaveContext& context) : context_(context), writer_(context) {}

std::string LocalSaves::open() {
  std::string id;
  std::string mine;
  try {
    if (context_.group.rank() == 0)
      id = ckpt::make_local_store_id(context_.options.directory, context_.owner);
  } catch (const std::exception& e) {
    mine = e.what();
  }
  id = context_.group.broadcast_text(id, 0);
  try {
    if (!id.empty())
      store_.emplace(context_.options.local_directory, id, context_.options.directory);
  } catch (const std::exception& e) {
    mine = e.what();
  }
  auto problem = first_problem(context_.group, mine, context_.owner.host);
  if (!problem.empty()) {
    store_.reset();
  } else if (context_.leads_node()) {
    store_->remove_abandoned();
  }
  return problem;
}

void LocalSaves::start(const ckpt::SaveId& id, ckpt::CheckpointInfo info,
                       const std::vector<StateArray>& arrays) {
  staging_ = std::make_shared<Save>();
  staging_->id = id;
  staging_->info = std::move(info);
  staging_->began = std::chrono::steady_clock::now();
  if (!first_) first_ = id;
  writer_.start(arrays, [save = staging_, store = &*store_, first = context_.group.rank() == 0](
                            const ShardPlace& place, std::span<const ckpt::ArrayView> views) {
    try {
      save->shard = store->write(save->id, place.writers, place.file_name, views,
                                 shard_attributes(save->info),
                                 first ? std::optional(save->info) : std::nullopt);
    } catch (const std::exception& e) {
      save->problem = e.what();
    }
    save->seconds = seconds_since(save->began);
  });
}

LocalSaves::Staged LocalSaves::finish_staging() {
  if (!staging()) return {};
  writer_.wait();
  const auto save = std::exchange(staging_, nullptr);
  Staged staged;
  staged.problem = first_problem(context_.group, save->problem, context_.owner.host);
  staged.seconds = context_.group.all_reduce_value(save->seconds, comm::ReduceOp::max);
  if (staged.problem.empty()) complete_ = waiting_ = save;
  return staged;
}

const ckpt::CheckpointInfo* LocalSaves::waits() const noexcept {
  return waiting_ ? &waiting_->info : nullptr;
}

std::uint64_t LocalSaves::waiting_step() const noexcept {
  return waiting_->id.step;
}

std::string LocalSaves::begin_copy(ckpt::CheckpointDirectory& directory, BackgroundSave& copying) {
  const auto problem = problem_on_leader(
      context_.group, [&] { directory.begin(waiting_->id.step, context_.owner); });
  const auto save = std::exchange(waiting_, nullptr);
  if (!problem.empty()) return problem;
  copying_ = save;
  std::optional<WrittenShard> mine;
  if (save->shard) mine = WrittenShard{store_->file_of(*save->shard), save->shard->record};
  copying.start_copy(save->id, save->info, std::move(mine));
  return {};
}

void LocalSaves::remove_needless(std::int64_t durable) {
  if (!context_.leads_node() || !store_ || !first_) return;
  std::vector<ckpt::SaveId> keep;
  for (const auto& save : {staging_, waiting_, complete_, copying_}) {
    if (save && static_cast<std::int64_t>(save->id.step) > durable) keep.push_back(save->id);
  }
  // What earlier processes left is kept until this one has a checkpoint of its own.
  const bool has_own = static_cast<std::int64_t>(first_->step) <= durable;
  store_->keep_only(keep, has_own ? std::nullopt : std::optional(first_->owner));
}

}  // namespace ddp::train
