// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/background_save.h"

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "ddp_runtime/train/array_views.h"
#include "ddp_runtime/train/shard_report.h"
#include "ddp_runtime/train/write_partition.h"
#include "hdf5_ckpt/lease.h"
#include "hdf5_ckpt/memory_headroom.h"

namespace ddp::train {
namespace {

// Fraction of the available memory that a copy may use; training needs the rest.
constexpr double kUsablePart = 0.9;

// All ranks of a node allocate their copies at the same time.
std::optional<std::uint64_t> headroom_per_rank(std::uint64_t ranks_on_host) {
  const auto left = ckpt::memory_headroom();
  if (!left) return std::nullopt;
  return static_cast<std::uint64_t>(static_cast<double>(*left) * kUsablePart) / ranks_on_host;
}

}  // namespace

// The save's background thread works on it, and on the directory and the retention; it accesses
// nothing else of the save except leaving_. This rank accesses it before the thread starts and
// after the thread is joined.
struct BackgroundSave::Job {
  ckpt::SaveId id;
  ckpt::CheckpointInfo info;
  ShardReport shard;  // of this rank
  SaveResult result;  // on rank 0, once it commits
};

BackgroundSave::BackgroundSave(comm::Group& group, const TrainingState& state,
                               ckpt::CheckpointDirectory& directory, ckpt::Retention& retention,
                               const CheckpointOptions& options, std::uint64_t ranks_on_host,
                               std::function<bool(std::uint64_t)> in_use)
    : group_(group),
      state_(state),
      directory_(directory),
      retention_(retention),
      options_(options),
      in_use_(std::move(in_use)),
      saver_({.budget_bytes = options.copy_bytes,
              .headroom = [ranks_on_host] { return headroom_per_rank(ranks_on_host); }}) {}

void BackgroundSave::start(const ckpt::SaveId& id, ckpt::CheckpointInfo info,
                           const std::vector<NamedTensor>& arrays) {
  job_ = std::make_shared<Job>();
  job_->id = id;
  job_->info = std::move(info);
  job_->result.step = id.step;
  shards_in_flight_ = true;
  write_shard(arrays);
}

void BackgroundSave::write_shard(const std::vector<NamedTensor>& arrays) {
  const int writers = count_writers(arrays, options_.bytes_per_writer, group_.size());
  if (group_.rank() >= writers) return;
  const auto part = on_host(part_of(state_, arrays, group_.rank(), writers));
  const nlohmann::json attributes = {{"epoch", job_->info.epoch},
                                     {"world_size", job_->info.world_size}};
  const auto write =
      [job = job_, directory = &directory_, attributes, reads_back = !leaving_,
       name = shard_name(group_.rank(), writers)](std::span<const ckpt::ArrayView> views) {
        try {
          auto record = directory->write_shard(job->id, name, views, attributes);
          if (reads_back) directory->read_back(job->id, record);
          job->shard.read_back = reads_back;
          job->shard.record = std::move(record);
        } catch (const std::exception& e) {
          job->shard.problem = e.what();
        }
      };
  const auto views = array_views(part);
  try {
    saver_.start(views, write);
  } catch (const std::exception&) {
    write(views);  // not enough memory for a copy, or no thread available
  }
  if (!saver_.short_of_memory() || std::exchange(said_short_, true)) return;
  fmt::print(
      "checkpoint: rank {} has too little memory left for a copy of the {:.0f} MiB that it saves; "
      "they are written before the next step, as with --checkpoint-copy-mb 0\n",
      group_.rank(), static_cast<double>(bytes_of(part)) / 1048576);
}

std::optional<SaveResult> BackgroundSave::poll(bool anyone_writing) {
  if (shards_in_flight_ && !anyone_writing) finish_shards();
  if (!committing_ || !saver_.idle()) return std::nullopt;
  return take_result();
}

std::optional<SaveResult> BackgroundSave::drain() {
  saver_.wait();
  if (shards_in_flight_) finish_shards();
  if (!committing_) return std::nullopt;
  return take_result();
}

void BackgroundSave::finish_shards() {
  saver_.wait();
  shards_in_flight_ = false;
  const auto reports = group_.all_gather_text(to_text(job_->shard));
  if (group_.rank() != 0) {
    job_.reset();
    return;
  }
  auto shards = collect_shards(reports);
  if (shards.problem.empty()) {
    commit(std::move(shards.records), shards.verified);
    return;
  }
  directory_.abandon(job_->id);
  job_->result.problem = shards.problem;
  committing_ = true;
}

void BackgroundSave::commit(std::vector<ckpt::FileRecord> records, bool verified) {
  committing_ = true;
  const auto work = [job = job_, directory = &directory_, retention = &retention_,
                     leaving = &leaving_, in_use = &in_use_,
                     keep = static_cast<std::size_t>(options_.keep_last), verified,
                     records = std::move(records)](std::span<const ckpt::ArrayView>) {
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
  try {
    saver_.start({}, work);
  } catch (const std::system_error&) {
    work({});  // no thread available
  }
}

SaveResult BackgroundSave::take_result() {
  saver_.wait();
  committing_ = false;
  const auto job = std::exchange(job_, nullptr);
  return std::move(job->result);
}

}  // namespace ddp::train
