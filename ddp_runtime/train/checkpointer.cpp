#include "ddp_runtime/train/checkpointer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <unordered_set>

#include "ddp_runtime/comm/errors.h"
#include "hdf5_ckpt/crc32c.h"
#include "hdf5_ckpt/error.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

// SLURM's job id tells a requeued job's own leftovers from the work of others.
ckpt::OwnerTag this_owner() {
  const char* job = std::getenv("SLURM_JOB_ID");
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  return ckpt::OwnerTag::of_this_process(
      job != nullptr ? job : "local",
      restarts != nullptr ? static_cast<unsigned>(std::strtoul(restarts, nullptr, 10)) : 0);
}

// Finding out at the first save that it cannot be made would waste the work until then.
std::string why_not_writable(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return fmt::format("cannot create the checkpoint directory {}: {}", directory.string(),
                       error.message());
  }
  const auto probe = directory / fmt::format(".probe-{}", getpid());
  const int fd = open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fmt::format("cannot write to the checkpoint directory {}: {}", directory.string(),
                       std::strerror(errno));
  }
  close(fd);
  unlink(probe.c_str());
  return {};
}

std::vector<ckpt::ArrayView> views_of(const std::vector<NamedTensor>& arrays) {
  std::vector<ckpt::ArrayView> views;
  views.reserve(arrays.size());
  for (const auto& array : arrays) views.push_back(array_view(array));
  return views;
}

std::uint64_t bytes_of(const std::vector<NamedTensor>& arrays) {
  std::uint64_t bytes = 0;
  for (const auto& array : arrays) bytes += array.tensor.nbytes();
  return bytes;
}

// The part of the arrays that one of `writers` writes: the largest first, each to who has least.
// All ranks have the same list, so that all come to the same parts. What is not replicated is rank
// 0's.
std::vector<NamedTensor> part_of(const TrainingState& state, std::vector<NamedTensor> arrays,
                                 int writer, int writers) {
  std::stable_sort(arrays.begin(), arrays.end(), [](const auto& a, const auto& b) {
    return a.tensor.nbytes() > b.tensor.nbytes();
  });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(writers));
  std::vector<NamedTensor> part;
  for (auto& array : arrays) {
    const auto least =
        state.is_replicated(array.name) ? std::min_element(load.begin(), load.end()) : load.begin();
    *least += array.tensor.nbytes();
    if (least - load.begin() == writer) part.push_back(std::move(array));
  }
  return part;
}

std::string shard_name(int writer, int writers) {
  if (writers == 1) return "model.h5";
  return fmt::format("rank-{:05}-of-{:05}.h5", writer, writers);
}

// A line for each array.
std::string list_of(const std::vector<ckpt::ArrayView>& views) {
  std::string list;
  for (const auto& view : views) {
    list += fmt::format("'{}' {} {}\n", view.name, ckpt::dtype_name(view.dtype),
                        ckpt::shape_text(view.shape));
  }
  return list;
}

// The first line of `a` that is not in `b`; empty if there is none.
std::string first_line_missing(const std::string& a, const std::string& b) {
  std::istringstream text(b);
  std::unordered_set<std::string> there;
  for (std::string line; std::getline(text, line);) there.insert(line);
  std::istringstream lines(a);
  for (std::string line; std::getline(lines, line);) {
    if (!there.contains(line)) return line;
  }
  return {};
}

// The first rank whose list_of() is not rank 0's, and an array in which it differs.
std::string first_disagreement(const std::vector<std::string>& lists) {
  const auto differs = std::find_if(lists.begin(), lists.end(),
                                    [&](const auto& list) { return list != lists.front(); });
  const auto rank = differs - lists.begin();
  if (const auto more = first_line_missing(*differs, lists.front()); !more.empty()) {
    return fmt::format("rank {} has {}, rank 0 has not", rank, more);
  }
  if (const auto less = first_line_missing(lists.front(), *differs); !less.empty()) {
    return fmt::format("rank {} has not {}, which rank 0 has", rank, less);
  }
  return fmt::format("rank {} has the arrays of rank 0 in another order", rank);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Slower than most disks: a run that knows nothing better stops in time.
constexpr double kGuessedBytesPerSecond = 100e6;

}  // namespace

struct Checkpointer::Job {
  ckpt::SaveId id;
  ckpt::CheckpointInfo info;
  std::string problem;      // of this rank's part
  ckpt::FileRecord record;  // this rank's part
  bool wrote = false;       // there is a record
  bool committing = false;  // rank 0's second part is under way
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
      saver_({.budget_bytes = options_.copy_bytes}) {
  if (options_.directory.empty()) return;
  directory_.emplace(options_.directory);
  retention_.emplace(options_.directory, owner_);
  std::string mine;
  if (group_.rank() == 0) {
    mine = why_not_writable(options_.directory);
    // A run that starts afresh there would collide with the steps of the other, or mix with them.
    if (mine.empty() && options_.resume == "never" && !directory_->candidates().empty()) {
      mine = fmt::format(
          "{} already holds checkpoints; use --resume auto to go on from them, or another "
          "--checkpoint-dir",
          options_.directory.string());
    }
  }
  const std::string problem = group_.broadcast_text(mine, 0);
  if (!problem.empty()) throw UsageError(problem);
  if (group_.rank() == 0) {
    ckpt::remove_leftovers(options_.directory, ckpt::dead_relatives_of(owner_));
  }
}

ckpt::Checkpoint Checkpointer::load_on_leader() {
  if (options_.resume != "auto") {
    auto checkpoint = ckpt::Checkpoint::open(options_.resume);
    state_.load(checkpoint);
    return checkpoint;
  }
  std::string skipped;
  for (const auto& candidate : directory_->candidates()) {
    try {
      auto checkpoint = ckpt::Checkpoint::open(candidate.path);
      state_.load(checkpoint);
      return checkpoint;
    } catch (const ckpt::DamagedError& e) {
      fmt::print("skipped a damaged checkpoint: {}\n", e.what());
      skipped = e.what();
    }
  }
  throw RuntimeError(fmt::format(
      "{} holds checkpoints, but none of them is whole (the oldest: {}); use --resume never to "
      "start afresh, or another --checkpoint-dir",
      options_.directory.string(), skipped));
}

std::optional<Position> Checkpointer::resume(std::uint64_t seed) {
  if (options_.directory.empty() && (options_.resume == "auto" || options_.resume == "never")) {
    return std::nullopt;
  }
  if (options_.resume == "never") return std::nullopt;
  std::string text;
  if (group_.rank() == 0 && (options_.resume != "auto" || !directory_->candidates().empty())) {
    try {
      const auto checkpoint = load_on_leader();
      newest_ = checkpoint.path();
      const auto& saved = checkpoint.manifest().state;
      const auto user = saved.value("user", nlohmann::json::object());
      state_.user().require_fit(user);
      text = nlohmann::json{{"position", saved.at("position")}, {"user", user}}.dump();
      fmt::print("resumed from {} (step {}, made by {} rank{})\n", newest_.string(),
                 checkpoint.manifest().step, checkpoint.manifest().world_size,
                 checkpoint.manifest().world_size == 1 ? "" : "s");
    } catch (const ckpt::MismatchError& e) {
      throw UsageError(e.what());
    } catch (const nlohmann::json::exception&) {
      throw UsageError(fmt::format("{} was not made by a training run", newest_.string()));
    }
  }
  text = group_.broadcast_text(text, 0);
  if (text.empty()) return std::nullopt;
  state_.distribute(seed);
  const auto saved = nlohmann::json::parse(text);
  state_.user().restore(saved.at("user"));
  const auto position = Position::from_json(saved.at("position"));
  last_saved_step_ = position.step;
  return position;
}

bool Checkpointer::due(std::int64_t step, bool end_of_epoch) const {
  if (!enabled() || step == last_saved_step_) return false;
  if (options_.every_steps > 0 && step % options_.every_steps == 0) return true;
  return options_.every_epoch && end_of_epoch;
}

ckpt::CheckpointInfo Checkpointer::info_of(const Position& position) const {
  ckpt::CheckpointInfo info;
  info.epoch = static_cast<std::uint64_t>(position.epoch);
  info.world_size = static_cast<std::uint64_t>(group_.size());
  info.run_id = owner_.text();
  info.state = {{"position", position.to_json()}, {"run", run_}};
  // Rank 0's count; a run that adds none writes what it always wrote.
  if (group_.rank() == 0) {
    if (auto values = state_.user().values(); !values.empty()) info.state["user"] = values;
  }
  return info;
}

int Checkpointer::writers_of(const std::vector<NamedTensor>& arrays) const {
  const std::uint64_t share = std::max<std::uint64_t>(1, options_.bytes_per_writer);
  const std::uint64_t most = std::min<std::uint64_t>(arrays.size(), bytes_of(arrays) / share);
  return static_cast<int>(
      std::clamp<std::uint64_t>(most, 1, static_cast<std::uint64_t>(group_.size())));
}

// Parts of different lists would make a checkpoint with holes.
void Checkpointer::require_same_arrays(const std::vector<NamedTensor>& arrays) {
  const std::string list = list_of(views_of(arrays));
  const auto mine = static_cast<std::int64_t>(ckpt::crc32c(std::as_bytes(std::span(list))));
  const auto largest = group_.all_reduce_value(mine, comm::ReduceOp::max);
  const auto smallest = -group_.all_reduce_value(-mine, comm::ReduceOp::max);
  if (largest == smallest) return;
  throw RuntimeError(
      fmt::format("ranks disagree on what a checkpoint is to hold: {}; build the same model and "
                  "optimiser, and add the same values, on every rank",
                  first_disagreement(group_.all_gather_text(list))));
}

void Checkpointer::save(const Position& position) {
  settle();
  save_began_ = std::chrono::steady_clock::now();
  const auto arrays = state_.collect();
  require_same_arrays(arrays);
  if (longest_save_ == 0) {
    longest_save_ = static_cast<double>(bytes_of(arrays)) / kGuessedBytesPerSecond;
  }
  job_ = std::make_shared<Job>();
  job_->info = info_of(position);
  std::string id;
  if (group_.rank() == 0) {
    try {
      id = directory_->begin(static_cast<std::uint64_t>(position.step), owner_).to_json().dump();
    } catch (const ckpt::Error& e) {
      job_->problem = e.what();
    }
  }
  id = group_.broadcast_text(id, 0);
  last_saved_step_ = position.step;
  if (id.empty()) {  // nothing was begun
    if (group_.rank() == 0) count(job_->problem, position.step);
    job_.reset();
    return;
  }
  job_->id = ckpt::SaveId::from_json(nlohmann::json::parse(id));
  shards_in_flight_ = true;
  start_writing(arrays);
}

void Checkpointer::start_writing(const std::vector<NamedTensor>& arrays) {
  const int writers = writers_of(arrays);
  if (group_.rank() >= writers) return;
  const auto part = part_of(state_, arrays, group_.rank(), writers);
  const nlohmann::json attributes = {{"epoch", job_->info.epoch},
                                     {"world_size", job_->info.world_size}};
  const auto write =
      [job = job_, directory = &*directory_, attributes,
       name = shard_name(group_.rank(), writers)](std::span<const ckpt::ArrayView> views) {
        try {
          job->record = directory->write_shard(job->id, name, views, attributes);
          job->wrote = true;
        } catch (const ckpt::Error& e) {
          job->problem = e.what();
        }
      };
  const auto views = views_of(part);
  try {
    saver_.start(views, write);
  } catch (const ckpt::Error&) {
    write(views);  // there is no memory for a copy
  }
}

void Checkpointer::poll(bool anyone_writing) {
  if (shards_in_flight_ && !anyone_writing) finish_shards();
  if (job_ && job_->committing && saver_.idle()) harvest();
}

void Checkpointer::settle() {
  saver_.wait();
  if (shards_in_flight_) finish_shards();
  saver_.wait();
  harvest();
}

void Checkpointer::finish_shards() {
  saver_.wait();
  shards_in_flight_ = false;
  nlohmann::json mine = {{"problem", job_->problem}};
  if (job_->wrote) mine["record"] = ckpt::record_to_json(job_->record);
  const auto all = group_.all_gather_text(mine.dump());
  if (group_.rank() != 0) {
    job_.reset();
    return;
  }
  std::vector<ckpt::FileRecord> records;
  std::string problem;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto theirs = nlohmann::json::parse(all[rank]);
    if (theirs.contains("record")) records.push_back(ckpt::record_from_json(theirs["record"]));
    const auto text = theirs.at("problem").get<std::string>();
    if (text.empty() || !problem.empty()) continue;
    problem = group_.size() > 1 ? fmt::format("rank {}: {}", rank, text) : text;
  }
  if (problem.empty()) {
    commit_on_leader(std::move(records));
    return;
  }
  directory_->abandon(job_->id);
  job_->problem = problem;
  job_->committing = true;
  harvest();
}

// The thread has the retention to itself while it runs: nothing else uses it.
void Checkpointer::commit_on_leader(std::vector<ckpt::FileRecord> records) {
  job_->committing = true;
  const auto work = [job = job_, directory = &*directory_, retention = &*retention_,
                     keep = static_cast<std::size_t>(options_.keep_last),
                     records = std::move(records)](std::span<const ckpt::ArrayView>) {
    try {
      auto saved = directory->commit(job->id, records, job->info);
      job->path = saved.path;
      job->notes = std::move(saved.notes);
    } catch (const ckpt::Error& e) {
      job->problem = e.what();
      return;
    }
    try {
      for (auto& note : retention->apply({keep}).notes) job->notes.push_back(std::move(note));
    } catch (const ckpt::Error& e) {
      job->notes.push_back(fmt::format("old checkpoints were not removed: {}", e.what()));
    }
  };
  saver_.start({}, work);
}

// Rank 0: what has become of the save that was committed.
void Checkpointer::harvest() {
  if (!job_ || !job_->committing) return;
  saver_.wait();
  const auto job = std::move(job_);
  job_.reset();
  for (const auto& note : job->notes) fmt::print("checkpoint: {}\n", note);
  if (!job->path.empty()) newest_ = job->path;
  if (job->problem.empty()) longest_save_ = std::max(longest_save_, seconds_since(save_began_));
  count(job->problem, static_cast<std::int64_t>(job->id.step));
}

void Checkpointer::count(const std::string& problem, std::int64_t step) {
  if (problem.empty()) {
    failures_ = 0;
    return;
  }
  ++failures_;
  if (failures_ >= kFailuresInARow) {
    throw RuntimeError(
        fmt::format("{} checkpoints in a row could not be saved: {}", failures_, problem));
  }
  fmt::print(stderr, "warning: the checkpoint of step {} was not saved, training goes on: {}\n",
             step, problem);
}

// The one before is removed only when the new one is safe. A step may be there already: a run that
// was killed after its best step makes it again when resumed.
std::string Checkpointer::write_best(const std::vector<NamedTensor>& arrays,
                                     const Position& position) {
  const auto folder = options_.directory / "best";
  try {
    ckpt::CheckpointDirectory directory(folder, {.if_exists = ckpt::IfExists::kReplace});
    const auto step = static_cast<std::uint64_t>(position.step);
    const auto saved = directory.save(step, owner_, views_of(arrays), info_of(position));
    for (const auto& note : saved.notes) fmt::print("checkpoint: {}\n", note);
    best_ = saved.path;
    // Later steps belong to a run that was abandoned for an earlier checkpoint: theirs is the
    // user's.
    std::size_t later = 0;
    for (const auto& candidate : directory.candidates()) later += candidate.step > step ? 1 : 0;
    ckpt::Retention(folder, owner_).apply({later + 1});
  } catch (const ckpt::Error& e) {
    return e.what();
  }
  return {};
}

void Checkpointer::save_best(const Position& position) {
  if (!enabled() || !options_.keep_best) return;
  const auto arrays = state_.collect();
  if (group_.rank() == 0) count(write_best(arrays, position), position.step);
}

}  // namespace ddp::train
