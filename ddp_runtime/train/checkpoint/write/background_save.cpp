// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/write/background_save.h"

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <span>
#include <utility>

#include "ddp_runtime/train/checkpoint/write/shard_report.h"
#include "hdf5_ckpt/directory/lease.h"

namespace ddp::train {

// The save's background thread works on it, and on the directory and the retention; it accesses
// nothing else of the save except leaving_. This rank accesses it before the thread starts and
// after the thread is joined.
struct BackgroundSave::Job {
  ckpt::SaveId id;
  ckpt::CheckpointInfo info;
  ShardReport shard;  // of this rank
  SaveResult result;  // on rank 0, once it commits
};

BackgroundSave::BackgroundSave(const SaveContext& context, SaveTarget target)
    : context_(context), target_(std::move(target)), writer_(context) {}

void BackgroundSave::begin(const ckpt::SaveId& id, ckpt::CheckpointInfo info) {
  job_ = std::make_shared<Job>();
  job_->id = id;
  job_->info = std::move(info);
  job_->result.step = id.step;
  job_->result.epoch = job_->info.epoch;
  shards_in_flight_ = true;
}

void BackgroundSave::start(const ckpt::SaveId& id, ckpt::CheckpointInfo info,
                           const std::vector<StateArray>& arrays) {
  begin(id, std::move(info));
  writer_.start(arrays, [job = job_, directory = &target_.directory, reads_back = !leaving_](
                            const ShardPlace& place, std::span<const ckpt::ArrayView> views) {
    try {
      auto record =
          directory->write_shard(job->id, place.file_name, views, shard_attributes(job->info));
      if (reads_back) directory->read_back(job->id, record);
      job->shard.read_back = reads_back;
      job->shard.record = std::move(record);
    } catch (const std::exception& e) {
      job->shard.problem = e.what();
    }
  });
}

void BackgroundSave::start_copy(const ckpt::SaveId& id, ckpt::CheckpointInfo info,
                                std::optional<WrittenShard> mine) {
  begin(id, std::move(info));
  if (!mine) return;
  writer_.start([job = job_, directory = &target_.directory, reads_back = !leaving_,
                 shard = std::move(*mine)] {
    try {
      directory->copy_shard(job->id, shard.record, shard.file);
      if (reads_back) directory->read_back(job->id, shard.record);
      job->shard.read_back = reads_back;
      job->shard.record = shard.record;
    } catch (const std::exception& e) {
      job->shard.problem = e.what();
    }
  });
}

std::optional<SaveResult> BackgroundSave::poll(bool anyone_writing) {
  if (shards_in_flight_ && !anyone_writing) finish_shards();
  if (!committing_ || !writer_.idle()) return std::nullopt;
  return take_result();
}

std::optional<SaveResult> BackgroundSave::drain() {
  writer_.wait();
  if (shards_in_flight_) finish_shards();
  if (!committing_) return std::nullopt;
  return take_result();
}

void BackgroundSave::finish_shards() {
  writer_.wait();
  shards_in_flight_ = false;
  const auto reports = context_.group.all_gather_text(to_text(job_->shard));
  if (context_.group.rank() != 0) {
    job_.reset();
    return;
  }
  auto shards = collect_shards(reports);
  if (shards.problem.empty()) {
    commit(std::move(shards.records), shards.verified);
    return;
  }
  target_.directory.abandon(job_->id);
  job_->result.problem = shards.problem;
  committing_ = true;
}

void BackgroundSave::commit(std::vector<ckpt::FileRecord> records, bool verified) {
  committing_ = true;
  const auto work = [job = job_, directory = &target_.directory, retention = &target_.retention,
                     leaving = &leaving_, in_use = &target_.in_use,
                     keep = static_cast<std::size_t>(context_.options.keep_last), verified,
                     records = std::move(records)] {
    auto& result = job->result;
    try {
      auto saved = directory->commit(job->id, records, job->info);
      result.notes = std::move(saved.notes);
      if (verified) retention->remember_verified(saved.manifest);
      result.path = std::move(saved.path);
    } catch (const ckpt::LeaseError& e) {
      result.fenced = true;
      result.problem = e.what();
      return;
    } catch (const std::exception& e) {
      result.problem = e.what();
      return;
    }
    // A process that is about to exit has no time for this; the next process does it.
    if (*leaving) return;
    try {
      const ckpt::RetentionPolicy policy{keep, job->id.step, *in_use,
                                         [leaving] { return leaving->load(); }};
      for (auto& note : retention->apply(policy).notes) result.notes.push_back(std::move(note));
    } catch (const std::exception& e) {
      result.notes.push_back(fmt::format("old checkpoints were not removed: {}", e.what()));
    }
  };
  writer_.start(work);
}

SaveResult BackgroundSave::take_result() {
  writer_.wait();
  committing_ = false;
  const auto job = std::exchange(job_, nullptr);
  return std::move(job->result);
}

}  // namespace ddp::train
