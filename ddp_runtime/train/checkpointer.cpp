#include "ddp_runtime/train/checkpointer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ddp_runtime/comm/errors.h"
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

}  // namespace

Checkpointer::Checkpointer(comm::Group& group, TrainingState& state, CheckpointOptions options,
                           nlohmann::json run)
    : group_(group),
      state_(state),
      options_(std::move(options)),
      run_(std::move(run)),
      owner_(this_owner()) {
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
      text = checkpoint.manifest().state.at("position").dump();
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
  const auto position = Position::from_json(nlohmann::json::parse(text));
  last_saved_step_ = position.step;
  return position;
}

bool Checkpointer::due(std::int64_t step, bool end_of_epoch) const {
  if (!enabled() || step == last_saved_step_) return false;
  if (options_.every_steps > 0 && step % options_.every_steps == 0) return true;
  return options_.every_epoch && end_of_epoch;
}

ckpt::Saved Checkpointer::write(ckpt::CheckpointDirectory& directory,
                                const std::vector<NamedTensor>& arrays,
                                const Position& position) const {
  std::vector<ckpt::ArrayView> views;
  views.reserve(arrays.size());
  for (const auto& array : arrays) views.push_back(array_view(array));
  ckpt::CheckpointInfo info;
  info.epoch = static_cast<std::uint64_t>(position.epoch);
  info.world_size = static_cast<std::uint64_t>(group_.size());
  info.run_id = owner_.text();
  info.state = {{"position", position.to_json()}, {"run", run_}};
  auto saved = directory.save(static_cast<std::uint64_t>(position.step), owner_, views, info);
  for (const auto& note : saved.notes) fmt::print("checkpoint: {}\n", note);
  return saved;
}

std::string Checkpointer::write_newest(const std::vector<NamedTensor>& arrays,
                                       const Position& position) {
  try {
    newest_ = write(*directory_, arrays, position).path;
  } catch (const ckpt::Error& e) {
    return e.what();
  }
  try {
    const auto report = retention_->apply({static_cast<std::size_t>(options_.keep_last)});
    for (const auto& note : report.notes) fmt::print("checkpoint: {}\n", note);
  } catch (const ckpt::Error& e) {
    fmt::print(stderr, "warning: old checkpoints were not removed: {}\n", e.what());
  }
  return {};
}

// The one before is removed only when the new one is safe. A step may be there already: a run that
// was killed after its best step makes it again when resumed.
std::string Checkpointer::write_best(const std::vector<NamedTensor>& arrays,
                                     const Position& position) {
  const auto folder = options_.directory / "best";
  try {
    ckpt::CheckpointDirectory directory(folder, {.if_exists = ckpt::IfExists::kReplace});
    best_ = write(directory, arrays, position).path;
    // Later steps belong to a run that was abandoned for an earlier checkpoint: theirs is the
    // user's.
    std::size_t later = 0;
    for (const auto& candidate : directory.candidates()) {
      later += candidate.step > static_cast<std::uint64_t>(position.step) ? 1 : 0;
    }
    ckpt::Retention(folder, owner_).apply({later + 1});
  } catch (const ckpt::Error& e) {
    return e.what();
  }
  return {};
}

void Checkpointer::save(const Position& position) {
  save_with(&Checkpointer::write_newest, position);
  last_saved_step_ = position.step;
}

void Checkpointer::save_best(const Position& position) {
  if (enabled() && options_.keep_best) save_with(&Checkpointer::write_best, position);
}

void Checkpointer::save_with(Write how, const Position& position) {
  const auto arrays = state_.collect();
  std::string problem;
  if (group_.rank() == 0) problem = (this->*how)(arrays, position);
  problem = group_.broadcast_text(problem, 0);
  if (problem.empty()) {
    failures_ = 0;
    return;
  }
  ++failures_;
  if (failures_ >= kFailuresInARow) {
    throw RuntimeError(
        fmt::format("{} checkpoints in a row could not be saved: {}", failures_, problem));
  }
  if (group_.rank() == 0) {
    fmt::print(stderr, "warning: the checkpoint of step {} was not saved, training goes on: {}\n",
               position.step, problem);
  }
}

}  // namespace ddp::train
