// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <thread>

#include "base/deadline.h"
#include "base/errors.h"
#include "ddp_runtime/train/array_views.h"
#include "ddp_runtime/train/checkpoint_agreement.h"
#include "ddp_runtime/train/run_difference.h"
#include "ddp_runtime/train/run_directory.h"
#include "ddp_runtime/train/write_partition.h"
#include "hdf5_ckpt/error.h"
#include "hdf5_ckpt/memory_headroom.h"

namespace ddp::train {
namespace {

// Fraction of the available memory that a copy may use; training needs the rest.
constexpr double kUsablePart = 0.9;

// Slower than most disks, so that a run that has not measured its disk stops early enough.
constexpr double kGuessedBytesPerSecond = 100e6;

// A file server can take longer to restart, but a job that must exit cannot wait longer.
constexpr auto kBetweenAttempts = std::chrono::milliseconds(500);

}  // namespace

struct Checkpointer::Job {
  ckpt::SaveId id;
  ckpt::CheckpointInfo info;
  std::string problem;      // with this rank's part; empty if none
  ckpt::FileRecord record;  // of this rank's part
  bool wrote = false;       // `record` is valid
  bool read_back = false;   // and every byte on the disk was correct
  bool committing = false;  // rank 0's commit is in progress
  bool fenced = false;      // another process has taken the directory over
  std::filesystem::path path;
  std::vector<std::string> notes;
};

Checkpointer::Checkpointer(comm::Group& group, TrainingState& state, CheckpointOptions options,
                           nlohmann::json run)
    : group_(group),
      state_(state),
      options_(std::move(options)),
      run_(std::move(run)),
      owner_(this_owner()),
      lineage_{ckpt::new_run_name(), {}, {}},
      saver_({.budget_bytes = options_.copy_bytes,
              .headroom = [this] { return headroom_per_rank(); }}) {
  if (options_.directory.empty()) return;
  // An existing step belongs to a fenced-off process or to an abandoned branch, so this run sets it
  // aside.
  ckpt::SaveOptions saving;
  saving.if_exists = ckpt::IfExists::set_aside;
  saving.before_publishing = [this] { require_lease(); };
  directory_.emplace(options_.directory, std::move(saving));
  retention_.emplace(options_.directory, owner_);
  retention_->remember_across_restarts();
  std::string mine;
  if (group_.rank() == 0) {
    mine = why_not_writable(options_.directory);
    // A run that starts over in this directory would collide or mix with the existing steps.
    if (mine.empty() && options_.resume == "never" && !directory_->candidates().empty()) {
      mine = fmt::format(
          "{} already holds checkpoints; use --resume auto to resume from them, or another "
          "--checkpoint-dir",
          options_.directory.string());
    }
  }
  const std::string problem = group_.broadcast_text(mine, 0);
  if (!problem.empty()) throw UsageError(problem);
  const auto hosts = group_.all_gather_text(owner_.host);
  local_ranks_ = static_cast<std::uint64_t>(std::count(hosts.begin(), hosts.end(), owner_.host));
}

// Checks repeatedly and briefly: rank 0 may have to watch another owner for a while, and the other
// ranks must not block in one long wait.
void Checkpointer::claim() {
  if (claimed_ || !enabled()) return;
  const std::string kHave = "have";
  std::optional<ckpt::LeaseClaim> claim;
  std::string said;
  while (said != kHave) {
    std::string mine;
    if (group_.rank() == 0) mine = claim_on_leader(claim) ? kHave : problem_;
    said = group_.broadcast_text(mine, 0);
    if (!said.empty() && said != kHave) throw UsageError(said);
  }
  claimed_ = true;
  if (group_.rank() != 0) return;
  // The directory is now this run's, so its previous writers are gone.
  const auto relative = ckpt::dead_relatives_of(owner_);
  const auto dead = [&](const ckpt::OwnerTag& owner) {
    return relative(owner) || (claim->other() && claim->other()->owner == owner && owner != owner_);
  };
  for (const auto& dir : {options_.directory, options_.directory / "best"}) {
    ckpt::remove_leftovers(dir, dead);
  }
}

// Returns whether this run has the directory. If not, problem_ gives the reason; an empty problem_
// means "not yet".
bool Checkpointer::claim_on_leader(std::optional<ckpt::LeaseClaim>& claim) {
  constexpr auto kLook = std::chrono::milliseconds(500);
  problem_.clear();
  try {
    const bool first = !claim;
    if (first) claim.emplace(options_.directory, owner_);
    lease_ = claim->advance(first ? std::chrono::milliseconds(0) : kLook);
    if (!lease_ && first) {
      fmt::print("checkpoint: waiting for up to 30 s to see whether {} still saves to {}\n",
                 claim->other() ? claim->other()->name() : "another process",
                 options_.directory.string());
      static_cast<void>(std::fflush(stdout));
    }
  } catch (const std::exception& e) {
    problem_ = e.what();
  }
  return lease_ != nullptr;
}

void Checkpointer::require_lease() const {
  if (lease_) lease_->require();
}

// Returns nullopt if there is nothing to resume. All bytes of the checkpoint have been verified.
std::optional<ckpt::Resumption> Checkpointer::load_on_leader() {
  const auto accept = [this](const ckpt::Checkpoint& checkpoint) {
    checkpoint.verify_metadata();
    state_.load(checkpoint);
  };
  if (options_.resume == "auto") return ckpt::resume_newest(*directory_, accept);
  return ckpt::resume_path(directory_ ? &*directory_ : nullptr, options_.resume, accept);
}

// On rank 0: returns the data about the checkpoint that the other ranks need; empty if there is
// none.
std::string Checkpointer::resume_on_leader() {
  auto resumed = load_on_leader();
  if (!resumed) return {};
  const auto& checkpoint = resumed->checkpoint;
  const auto& manifest = checkpoint.manifest();
  for (const auto& note : resumed->notes) fmt::print("checkpoint: {}\n", note);
  newest_ = checkpoint.path();
  const auto user = manifest.state.value("user", nlohmann::json::object());
  state_.user().require_fit(user);
  auto position = Position::from_json(manifest.state.at("position"));
  const auto differences = run_differences(manifest.state.value("run", nlohmann::json::object()),
                                           run_, position.consumed > 0);
  if (!differences.refusal.empty() && !options_.resume_changed) {
    throw UsageError(differences.refusal);
  }
  for (const auto& line : differences.lines) fmt::print("checkpoint: {}\n", line);
  // A loss on different data says nothing about this run's evaluations.
  if (differences.other_data) position.best = {};
  auto text = nlohmann::json{{"position", position.to_json()}, {"user", user}}.dump();
  if (directory_) leave_branch(*resumed);
  lineage_ = std::move(resumed->lineage);
  fmt::print("resumed from {} (step {}, made by {} rank{})\n", newest_.string(), manifest.step,
             manifest.world_size, manifest.world_size == 1 ? "" : "s");
  return text;
}

// On rank 0: makes the position of this run the newest checkpoint in the directory.
void Checkpointer::leave_branch(const ckpt::Resumption& resumed) {
  const auto step = resumed.checkpoint.manifest().step;
  const auto newest = resumed.in_directory ? std::optional(step) : std::nullopt;
  const auto names = directory_->set_aside(resumed.set_aside, newest, owner_);
  if (resumed.in_directory) retention_->remember_verified(resumed.checkpoint);
  if (names.empty()) return;
  set_aside_best_after(step);
  fmt::print(
      "checkpoint: {} not on the way to step {} set aside in {}, and kept until ddp-ckpt clean "
      "removes {}\n",
      names.size() == 1 ? "one checkpoint" : fmt::format("{} checkpoints", names.size()), step,
      options_.directory.string(), names.size() == 1 ? "it" : "them");
}

// On rank 0. A best checkpoint of a later step belongs to an abandoned branch, and would be taken
// for the newest one in best/.
void Checkpointer::set_aside_best_after(std::uint64_t step) {
  const auto best = options_.directory / "best";
  for (const auto& name : ckpt::CheckpointDirectory(best).set_aside_later_than(step, owner_)) {
    fmt::print("checkpoint: the best checkpoint of an abandoned branch is kept as {}\n",
               name.string());
  }
}

std::optional<Position> Checkpointer::resume(std::uint64_t seed) {
  if (options_.directory.empty() && (options_.resume == "auto" || options_.resume == "never")) {
    return std::nullopt;
  }
  if (enabled()) {
    state_.require_storable();
    require_storable(run_);
  }
  claim();
  if (options_.resume == "never") return std::nullopt;
  std::string text;
  if (group_.rank() == 0) {
    try {
      text = resume_on_leader();
    } catch (const ckpt::MismatchError& e) {
      throw UsageError(e.what());
    } catch (const nlohmann::json::exception&) {
      throw UsageError(fmt::format(
          "{} was not made by a training run; choose another one for --resume", newest_.string()));
    }
  }
  text = group_.broadcast_text(text, 0);
  if (text.empty()) return std::nullopt;
  state_.distribute(seed);
  const auto saved = nlohmann::json::parse(text);
  state_.user().restore(saved.at("user"));
  const auto position = Position::from_json(saved.at("position"));
  attempted_step_ = durable_step_ = agreed_step_ = position.step;
  return position;
}

bool Checkpointer::due(std::int64_t step, bool end_of_epoch) const {
  if (!enabled() || step == attempted_step_) return false;
  if (options_.every_steps > 0 && step % options_.every_steps == 0) return true;
  return options_.every_epoch && end_of_epoch;
}

ckpt::CheckpointInfo Checkpointer::info_of(const Position& position) const {
  ckpt::CheckpointInfo info;
  info.epoch = static_cast<std::uint64_t>(position.epoch);
  info.world_size = static_cast<std::uint64_t>(group_.size());
  info.run_id = owner_.text();
  info.state = {{"position", position.to_json()}, {"run", run_}};
  info.lineage = lineage_;
  // Only rank 0's values are saved. A run without user values has no such entry.
  if (group_.rank() == 0) {
    if (auto values = state_.user().values(); !values.empty()) info.state["user"] = values;
  }
  return info;
}

// All ranks of a node allocate their copies at the same time.
std::optional<std::uint64_t> Checkpointer::headroom_per_rank() const {
  const auto left = ckpt::memory_headroom();
  if (!left) return std::nullopt;
  return static_cast<std::uint64_t>(static_cast<double>(*left) * kUsablePart) / local_ranks_;
}

void Checkpointer::save(const Position& position) {
  claim();
  drain();
  save_began_ = std::chrono::steady_clock::now();
  const auto arrays = state_.collect();
  require_same_arrays(group_, array_views(arrays));
  if (longest_save_ == 0) {
    longest_save_ = static_cast<double>(bytes_of(arrays)) / kGuessedBytesPerSecond;
  }
  job_ = std::make_shared<Job>();
  job_->info = info_of(position);
  std::string id;
  if (group_.rank() == 0) {
    try {
      id = directory_->begin(static_cast<std::uint64_t>(position.step), owner_).to_json().dump();
    } catch (const std::exception& e) {
      job_->problem = e.what();
    }
  }
  id = group_.broadcast_text(id, 0);
  attempted_step_ = position.step;
  if (id.empty()) {  // no save was begun
    if (group_.rank() == 0) record_result(job_->problem, position.step);
    job_.reset();
    return;
  }
  job_->id = ckpt::SaveId::from_json(nlohmann::json::parse(id));
  shards_in_flight_ = true;
  start_writing(arrays);
}

void Checkpointer::start_writing(const std::vector<NamedTensor>& arrays) {
  const int writers = count_writers(arrays, options_.bytes_per_writer, group_.size());
  if (group_.rank() >= writers) return;
  const auto part = part_of(state_, arrays, group_.rank(), writers);
  const nlohmann::json attributes = {{"epoch", job_->info.epoch},
                                     {"world_size", job_->info.world_size}};
  const auto write =
      [job = job_, directory = &*directory_, attributes, reads_back = !leaving_,
       name = shard_name(group_.rank(), writers)](std::span<const ckpt::ArrayView> views) {
        try {
          job->record = directory->write_shard(job->id, name, views, attributes);
          if (reads_back) directory->read_back(job->id, job->record);
          job->read_back = reads_back;
          job->wrote = true;
        } catch (const std::exception& e) {
          job->problem = e.what();
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

void Checkpointer::poll(bool anyone_writing) {
  if (shards_in_flight_ && !anyone_writing) finish_shards();
  if (job_ && job_->committing && saver_.idle()) finish_commit();
}

void Checkpointer::drain() {
  saver_.wait();
  if (shards_in_flight_) finish_shards();
  saver_.wait();
  finish_commit();
  agree_on_durable_step();
}

void Checkpointer::agree_on_durable_step() {
  agreed_step_ = durable_step_;
  group_.broadcast(comm::buffer_of(agreed_step_), 0, "step of the newest checkpoint").wait();
}

void Checkpointer::save_last(const Position& position) {
  ending_ = true;
  drain();
  for (int attempt = 0; attempt < kLastAttempts && agreed_step_ != position.step; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kBetweenAttempts);
    save(position);
    drain();
  }
  ending_ = false;
  if (agreed_step_ == position.step) return;
  throw RuntimeError(group_.broadcast_text(
      fmt::format("the checkpoint of step {}, the last one, could not be saved: {}; the newest "
                  "complete checkpoint: {}",
                  position.step, problem_, newest_.empty() ? "none" : newest_.string()),
      0));
}

void Checkpointer::finish_shards() {
  saver_.wait();
  shards_in_flight_ = false;
  nlohmann::json mine = {{"problem", job_->problem}, {"read_back", job_->read_back}};
  if (job_->wrote) mine["record"] = ckpt::record_to_json(job_->record);
  const auto all = group_.all_gather_text(mine.dump());
  if (group_.rank() != 0) {
    job_.reset();
    return;
  }
  std::vector<ckpt::FileRecord> records;
  std::string problem;
  bool verified = true;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto theirs = nlohmann::json::parse(all[rank]);
    if (theirs.contains("record") && !theirs.at("read_back").get<bool>()) verified = false;
    if (theirs.contains("record")) records.push_back(ckpt::record_from_json(theirs["record"]));
    const auto text = theirs.at("problem").get<std::string>();
    if (text.empty() || !problem.empty()) continue;
    problem = group_.size() > 1 ? fmt::format("rank {}: {}", rank, text) : text;
  }
  if (problem.empty()) {
    job_->read_back = verified;
    commit_on_leader(std::move(records));
    return;
  }
  directory_->abandon(job_->id);
  job_->problem = problem;
  job_->committing = true;
  finish_commit();
}

// While the background thread runs, nothing else uses the retention.
void Checkpointer::commit_on_leader(std::vector<ckpt::FileRecord> records) {
  job_->committing = true;
  job_->info.lineage = lineage_;
  const auto work = [job = job_, directory = &*directory_, retention = &*retention_,
                     leaving = &leaving_, keep = static_cast<std::size_t>(options_.keep_last),
                     records = std::move(records)](std::span<const ckpt::ArrayView>) {
    try {
      auto saved = directory->commit(job->id, records, job->info);
      job->notes = std::move(saved.notes);
      if (job->read_back) retention->remember_verified(saved.manifest);
      job->path = std::move(saved.path);
    } catch (const ckpt::LeaseError& e) {
      job->fenced = true;
      job->problem = e.what();
      return;
    } catch (const std::exception& e) {
      job->problem = e.what();
      return;
    }
    // A process that is about to exit has no time for this; the next process does it.
    if (*leaving) return;
    try {
      const ckpt::RetentionPolicy policy{keep, job->id.step, [leaving] { return leaving->load(); }};
      for (auto& note : retention->apply(policy).notes) job->notes.push_back(std::move(note));
    } catch (const std::exception& e) {
      job->notes.push_back(fmt::format("old checkpoints were not removed: {}", e.what()));
    }
  };
  try {
    saver_.start({}, work);
  } catch (const std::system_error&) {
    work({});  // no thread available
  }
}

// On rank 0: processes the result of the save that was committed.
void Checkpointer::finish_commit() {
  if (!job_ || !job_->committing) return;
  saver_.wait();
  const auto job = std::move(job_);
  job_.reset();
  for (const auto& note : job->notes) fmt::print("checkpoint: {}\n", note);
  if (!job->path.empty()) newest_ = job->path;
  if (job->problem.empty()) {
    longest_save_ = std::max(longest_save_, seconds_since(save_began_));
    lineage_.parent = job->id.step;
    durable_step_ = static_cast<std::int64_t>(job->id.step);
  }
  if (job->fenced) throw UsageError(job->problem);
  record_result(job->problem, static_cast<std::int64_t>(job->id.step));
}

void Checkpointer::record_result(const std::string& problem, std::int64_t step) {
  if (problem.empty()) {
    failures_ = 0;
    return;
  }
  problem_ = problem;
  if (ending_) {
    fmt::print(stderr, "warning: the checkpoint of step {} was not saved: {}\n", step, problem);
    return;
  }
  ++failures_;
  if (failures_ >= kFailuresInARow) {
    throw RuntimeError(
        fmt::format("{} checkpoints in a row could not be saved: {}", failures_, problem));
  }
  fmt::print(stderr, "warning: the checkpoint of step {} was not saved, training continues: {}\n",
             step, problem);
}

// The previous best checkpoint is removed only after the new one is safe. The step may already
// exist: a run that was killed after its best step repeats it after resuming.
std::string Checkpointer::write_best(const std::vector<NamedTensor>& arrays,
                                     const Position& position) {
  const auto dir = options_.directory / "best";
  try {
    ckpt::SaveOptions saving;
    saving.if_exists = ckpt::IfExists::replace;
    saving.before_publishing = [this] { require_lease(); };
    ckpt::CheckpointDirectory directory(dir, std::move(saving));
    const auto step = static_cast<std::uint64_t>(position.step);
    const auto saved = directory.save(step, owner_, array_views(arrays), info_of(position));
    for (const auto& note : saved.notes) fmt::print("checkpoint: {}\n", note);
    best_ = saved.path;
    set_aside_best_after(step);
    ckpt::Retention best(dir, owner_);
    best.remember_across_restarts();
    for (const auto& note : best.apply({1, step}).notes) fmt::print("checkpoint: {}\n", note);
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

void Checkpointer::save_best(const Position& position) {
  if (!enabled() || !options_.keep_best) return;
  const auto arrays = state_.collect();
  if (group_.rank() != 0) return;
  // Only failures of checkpoints from which a run can resume are counted.
  const std::string problem = write_best(arrays, position);
  if (problem.empty()) return;
  fmt::print(stderr, "warning: the best checkpoint, of step {}, was not saved: {}\n", position.step,
             problem);
}

}  // namespace ddp::train
