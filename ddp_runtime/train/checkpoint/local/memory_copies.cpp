// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/local/memory_copies.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <span>
#include <utility>

#include "base/deadline.h"
#include "ddp_runtime/comm/ddp_run/run_events.h"
#include "ddp_runtime/train/checkpoint/local/local_adoption.h"
#include "ddp_runtime/train/checkpoint/write/shard_report.h"
#include "ddp_runtime/train/checkpoint/write/write_partition.h"
#include "ddp_runtime/train/ranks/rank_agreement.h"
#include "ddp_runtime/train/state/array_views.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/write/memory_headroom.h"

namespace ddp::train {
namespace {

constexpr double kMiB = 1048576;
// Of the memory that is left, which training needs, too.
constexpr double kUsableShare = 0.9;
// What a file has besides its arrays.
constexpr std::uint64_t kBytesBesideArrays = 1ULL << 20;

// So that every rank with rows writes them, and rank 0 all that is not divided.
constexpr std::uint64_t kOneWriter = std::uint64_t{1} << 62;

std::string mib(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMiB);
}

}  // namespace

// The thread that writes it accesses `shard` and `problem`; this rank, after it was joined.
struct MemoryCopies::Copy {
  ckpt::SaveId id;
  ckpt::CheckpointInfo info;
  std::string file_name;    // that this rank writes; empty: none
  std::size_t writers = 1;  // of one copy
  std::optional<ckpt::LocalShard> shard;
  std::string problem;
  double stall = 0;
};

MemoryCopies::MemoryCopies(const SaveContext& context)
    : context_(context),
      timer_({.every_seconds = context.options.memory_seconds,
              .young = context.options.memory_auto,
              .mtbf_seconds = mtbf_of_job(context.options.mtbf_seconds, context.hosts.nodes()),
              .option = "--checkpoint-memory auto"}),
      saver_({.budget_bytes = context.options.copy_bytes}) {}

void MemoryCopies::open() {
  const auto run = comm::run_id();
  if (context_.group.all_reduce_value(run ? 1 : 0, comm::ReduceOp::min) == 0) {
    if (!context_.leads()) return;
    return context_.log.line(
        "checkpoint: no copies in the memory of nodes, because only a program that ddp-run has "
        "started can be started again while they are there");
  }
  std::string mine;
  try {
    if (context_.leads_node()) comm::remove_stale_run_memory();
    memory_.emplace(*run);
  } catch (const std::exception& e) {
    mine = e.what();
  }
  on_ = true;
  const auto problem = first_problem(context_.group, mine, context_.owner.host);
  if (!problem.empty()) return stop(problem);
  timer_.restart(std::chrono::steady_clock::now());
}

// Collective.
NodeStores MemoryCopies::stores() {
  std::string id;
  if (context_.leads()) id = ckpt::local_store_id(context_.options.directory).value_or("");
  return {memory_->path(), context_.group.broadcast_text(id, 0), "the nodes' memories"};
}

std::string MemoryCopies::save(ckpt::CheckpointDirectory& directory) {
  if (!on_) return {};
  return adopt_saves(context_, stores(), directory);
}

std::optional<MemoryCopy> MemoryCopies::restore(ckpt::CheckpointDirectory& directory) {
  if (!on_) return std::nullopt;
  auto copy = restore_from_memory(context_, stores(), directory);
  if (copy) restored_ = copy->save;
  return copy;
}

bool MemoryCopies::time_to_copy() const {
  return on_ && context_.leads() && !staging_ && timer_.due(std::chrono::steady_clock::now());
}

bool MemoryCopies::due(std::int64_t step) const {
  if (!on_ || staging_ || step == attempted_) return false;
  if (requested_) return true;
  return context_.options.memory_steps > 0 && step % context_.options.memory_steps == 0;
}

void MemoryCopies::note_checkpoint() {
  requested_ = false;
  timer_.restart(std::chrono::steady_clock::now());
}

void MemoryCopies::start(std::int64_t step, const ckpt::CheckpointInfo& info,
                         const std::vector<StateArray>& arrays,
                         std::chrono::steady_clock::time_point began) {
  requested_ = false;
  attempted_ = step;
  const ckpt::SaveId mine{static_cast<std::uint64_t>(step), context_.owner};
  std::string text;
  if (context_.leads()) {
    text = nlohmann::json{mine.to_json(), ckpt::info_to_text(mine, info)}.dump();
  }
  const auto said = nlohmann::json::parse(context_.group.broadcast_text(text, 0));
  auto copy = std::make_shared<Copy>();
  copy->id = ckpt::SaveId::from_json(said.at(0));
  copy->info = ckpt::info_from_text(said.at(1).get<std::string>());
  auto own = share(arrays, *copy);
  if (!store_) {
    const auto problem = first_problem(
        context_.group, prepare(copy->file_name.empty() ? 0 : bytes_of(own)), context_.owner.host);
    if (!problem.empty()) return stop(problem);
    if (context_.leads()) {
      context_.log.line(
          fmt::format("checkpoint: two copies of {} in the memory of each node, in {}",
                      mib(bytes_per_node_), memory_->path().string()));
    }
  }
  staging_ = std::move(copy);
  if (!staging_->file_name.empty()) stage(own);
  const double stall = seconds_since(began);
  staging_->stall = stall;
  stalls_ += stall;
  timer_.restart(std::chrono::steady_clock::now());
}

// What this rank writes.
std::vector<StateArray> MemoryCopies::share(std::vector<StateArray> arrays, Copy& copy) {
  const int rank = context_.group.rank();
  if (!context_.state.is_divided()) {
    take_values_of_leader(arrays);
    if (!context_.leads_node()) return {};
    copy.file_name = "model.h5";
    return on_host(std::move(arrays));
  }
  const auto writers = writers_of(arrays, kOneWriter, context_.group.size());
  copy.writers = writers.size();
  if (!std::ranges::binary_search(writers, rank)) return {};
  copy.file_name = shard_name(writers, rank);
  return on_host(share_of(context_.state, std::move(arrays), writers, rank));
}

// Collective. A checkpoint has rank 0's values of what differs between ranks, such as the
// statistics of batch normalization. Few bytes, in one message.
void MemoryCopies::take_values_of_leader(std::vector<StateArray>& arrays) {
  if (context_.hosts.nodes() == 1) return;
  std::vector<std::size_t> differing;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!context_.state.is_replicated(arrays[i].name)) differing.push_back(i);
  }
  std::vector<std::byte> values;
  for (const auto i : differing) {
    arrays[i].tensor = arrays[i].tensor.detach().cpu().contiguous().clone();
    const auto* data = static_cast<const std::byte*>(arrays[i].tensor.data_ptr());
    values.insert(values.end(), data, data + arrays[i].tensor.nbytes());
  }
  if (values.empty()) return;
  context_.group.broadcast(comm::buffer_of(std::span(values)), 0, "values of a copy").wait();
  const std::byte* from = values.data();
  for (const auto i : differing) {
    std::memcpy(arrays[i].tensor.data_ptr(), from, arrays[i].tensor.nbytes());
    from += arrays[i].tensor.nbytes();
  }
}

// Collective, before the first copy. `mine`: what this rank writes. Returns this rank's problem.
std::string MemoryCopies::prepare(std::uint64_t mine) {
  const auto problem = open_store();
  std::vector<std::int64_t> bytes(context_.hosts.ranks());
  auto own = static_cast<std::int64_t>(mine);
  context_.group
      .all_gather(comm::buffer_of(own), comm::buffer_of(std::span(bytes)), "bytes of a copy")
      .wait();
  bytes_per_node_ = 0;
  for (std::size_t rank = 0; rank < context_.hosts.ranks(); ++rank) {
    if (context_.hosts.of(rank) == context_.owner.host)
      bytes_per_node_ += static_cast<std::uint64_t>(bytes[rank]);
  }
  if (!problem.empty()) return problem;
  return context_.leads_node() ? room_problem(bytes_per_node_) : std::string();
}

// Collective. Returns this rank's problem.
std::string MemoryCopies::open_store() {
  std::string id;
  std::string problem;
  try {
    if (context_.leads())
      id = ckpt::make_local_store_id(context_.options.directory, context_.owner);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  id = context_.group.broadcast_text(id, 0);
  if (id.empty()) return problem.empty() ? "rank 0 cannot name the checkpoint directory" : problem;
  try {
    store_.emplace(memory_->path(), id, context_.options.directory);
  } catch (const std::exception& e) {
    return e.what();
  }
  if (!context_.leads_node()) return {};
  store_->remove_abandoned();
  const auto kept = restored_ ? std::vector{*restored_} : std::vector<ckpt::SaveId>();
  store_->keep_only(kept);
  return {};
}

// Whether two copies, and the memory from which one is written, fit in this node.
std::string MemoryCopies::room_problem(std::uint64_t bytes) const {
  const std::uint64_t copies = restored_ ? 1 : 2;
  const auto needed = copies * (bytes + kBytesBesideArrays);
  struct statvfs status {};
  if (statvfs(memory_->path().c_str(), &status) == 0) {
    const auto free = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
    if (free < needed) {
      return fmt::format("{} has room for {}, and copies need {}", memory_->path().string(),
                         mib(free), mib(needed));
    }
  }
  const auto left = ckpt::memory_headroom();
  const auto with_source = needed + bytes;
  if (left && static_cast<double>(*left) * kUsableShare < static_cast<double>(with_source)) {
    return fmt::format("the job has {} of memory left there, and copies need {}", mib(*left),
                       mib(with_source));
  }
  return {};
}

void MemoryCopies::stage(const std::vector<StateArray>& share) {
  const bool has_info = staging_->writers == 1 || context_.leads();
  const auto write = [copy = staging_, old = older_, store = &*store_,
                      has_info](std::span<const ckpt::ArrayView> views) {
    try {
      if (old && old->shard) store->remove(*old->shard);
      copy->shard = store->write(copy->id, copy->writers, copy->file_name, views,
                                 shard_attributes(copy->info),
                                 has_info ? std::optional(copy->info) : std::nullopt);
    } catch (const std::exception& e) {
      copy->problem = e.what();
    }
  };
  const auto views = array_views(share);
  try {
    saver_.start(views, write);
  } catch (const std::exception&) {
    write(views);  // no memory for the source, or no thread
  }
}

void MemoryCopies::poll(bool anyone_writing) {
  if (staging_ && !anyone_writing) finish();
}

// Collective, when no rank writes any more.
void MemoryCopies::finish() {
  saver_.wait();
  const auto copy = std::exchange(staging_, nullptr);
  const bool failed = !copy->problem.empty();
  if (context_.group.all_reduce_value(failed ? 1 : 0, comm::ReduceOp::max) != 0) {
    return stop(first_problem(context_.group, copy->problem, context_.owner.host));
  }
  older_ = std::exchange(newest_, copy);
  restored_.reset();
  memory_->touch();
  if (context_.leads_node()) {
    std::vector<ckpt::SaveId> kept{newest_->id};
    if (older_) kept.push_back(older_->id);
    store_->keep_only(kept);
  }
  if (!context_.leads()) return;
  ++copies_;
  comm::tell_kept_in_memory(static_cast<std::int64_t>(copy->id.step), context_.state.is_divided());
  const auto said = timer_.measured({copy->stall, 0});
  if (!said.empty()) context_.log.line("checkpoint: " + said);
}

// On all ranks.
void MemoryCopies::stop(const std::string& problem) {
  if (context_.leads()) {
    context_.log.warning(fmt::format(
        "no copies in the memory of nodes any more, and the state is saved to {} alone: {}",
        context_.options.directory.string(), problem));
  }
  release();
}

void MemoryCopies::release() noexcept {
  on_ = false;
  staging_ = newest_ = older_ = nullptr;
  if (!memory_) return;
  if (store_ && context_.leads_node()) store_->keep_only({});
  store_.reset();
  memory_.reset();
  // The last rank of a node finds it unused.
  if (const auto run = comm::run_id()) comm::remove_run_memory(*run);
}

void MemoryCopies::remove() noexcept {
  try {
    saver_.wait();
  } catch (const std::exception&) {
    // the copy is not needed any more
  }
  release();
}

nlohmann::json MemoryCopies::summary() const {
  if (copies_ == 0) return nullptr;
  return {{"copies", copies_},
          {"stall_seconds", stalls_ / static_cast<double>(copies_)},
          {"bytes_per_node", bytes_per_node_},
          {"divided", context_.state.is_divided()}};
}

}  // namespace ddp::train
