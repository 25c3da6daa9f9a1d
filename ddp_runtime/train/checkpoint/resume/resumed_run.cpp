// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/resume/resumed_run.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/train/checkpoint/resume/checkpoint_load.h"
#include "ddp_runtime/train/options/run_difference.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/enclosure.h"
#include "hdf5_ckpt/directory/resume.h"

namespace ddp::train {
namespace {

std::optional<ckpt::Resumption> load_copy(
    const ResumeSource& source, const std::function<void(const ckpt::Checkpoint&)>& accept) {
  if (source.copy == nullptr) return std::nullopt;
  try {
    // Opened again, because a resumption owns its checkpoint.
    const auto& checkpoint = *source.copy->checkpoint;
    accept(checkpoint);
    return ckpt::Resumption{ckpt::Checkpoint::open(checkpoint.path(), checkpoint.manifest()),
                            source.copy->lineage,
                            {},
                            {},
                            false};
  } catch (const ckpt::DamagedError& e) {
    source.context.log.warning(fmt::format("a copy in memory is not used: {}", e.what()));
  } catch (const ckpt::UnreadableError& e) {
    source.context.log.warning(fmt::format("a copy in memory is not used: {}", e.what()));
  }
  return std::nullopt;
}

// Another run may save and remove checkpoints there meanwhile: the next newest is tried.
ckpt::Resumption load_to_evaluate(const std::filesystem::path& directory,
                                  const std::function<void(const ckpt::Checkpoint&)>& accept) {
  auto [checkpoint, skipped] = ckpt::CheckpointDirectory(directory).newest_accepted(accept);
  if (checkpoint) return {std::move(*checkpoint), {}, std::move(skipped), {}, false};
  if (!skipped.empty()) {
    throw UsageError(fmt::format("{} holds no whole checkpoint to evaluate: {}", directory.string(),
                                 skipped.front()));
  }
  if (ckpt::enclosure_of(directory).kind == ckpt::Enclosure::Kind::checkpoint) {
    throw UsageError(fmt::format("{0} is itself a checkpoint: evaluate it with --resume {0}",
                                 directory.string()));
  }
  throw UsageError(fmt::format("{} holds no checkpoint to evaluate", directory.string()));
}

std::optional<ckpt::Resumption> load_checkpoint(const ResumeSource& source, TrainingState& state) {
  const auto accept = [&](const ckpt::Checkpoint& checkpoint) {
    checkpoint.verify_metadata();
    load_on_all(source.context.group, state, checkpoint);
  };
  const auto& evaluated = source.context.options.evaluated_directory;
  if (!evaluated.empty()) return load_to_evaluate(evaluated, accept);
  if (auto copied = load_copy(source, accept)) return copied;
  const auto& resume = source.context.options.resume;
  if (resume == "auto") return ckpt::resume_newest(source.target->directory, accept);
  return ckpt::resume_path(source.target == nullptr ? nullptr : &source.target->directory, resume,
                           accept);
}

// Returns the position to continue from. Throws UsageError if the runs differ too much.
Position position_in(const ckpt::Manifest& manifest, const ResumeSource& source) {
  auto position = Position::from_json(manifest.state.at("position"));
  const auto saved_run = manifest.state.value("run", nlohmann::json::object());
  if (position.first_batch == 0 && saved_run.is_object()) {
    position.first_batch = saved_run.value("global_batch", std::int64_t{0});
  }
  const auto differences = run_differences(saved_run, source.context.run, position.consumed > 0);
  if (!differences.refusal.empty() && !source.context.options.resume_changed) {
    throw UsageError(differences.refusal);
  }
  for (const auto& line : differences.lines) source.context.log.line("checkpoint: " + line);
  // A loss on different data says nothing about this run's evaluations.
  if (differences.other_data) position.best = {};
  return position;
}

// Makes the position of this run the newest checkpoint in the directory.
void leave_branch(const ResumeSource& source, const ckpt::Resumption& resumed) {
  const auto step = resumed.checkpoint.manifest().step;
  const auto newest = resumed.in_directory ? std::optional(step) : std::nullopt;
  const auto names =
      source.target->directory.set_aside(resumed.set_aside, newest, source.context.owner);
  if (resumed.in_directory) source.target->retention.remember_verified(resumed.checkpoint);
  if (names.empty()) return;
  source.best.abandon_after(step);
  source.context.log.line(fmt::format(
      "checkpoint: {} not on the way to step {} set aside in {}, and kept until ddp-ckpt clean "
      "removes {}",
      names.size() == 1 ? "one checkpoint" : fmt::format("{} checkpoints", names.size()), step,
      source.context.options.directory.string(), names.size() == 1 ? "it" : "them"));
}

}  // namespace

std::optional<ResumedRun> resume_on_leader(const ResumeSource& source, TrainingState& state) {
  ResumedRun run;
  try {
    auto resumed = load_checkpoint(source, state);
    if (!resumed) return std::nullopt;
    const auto& manifest = resumed->checkpoint.manifest();
    for (const auto& note : resumed->notes) source.context.log.line("checkpoint: " + note);
    run.checkpoint = resumed->checkpoint.path();
    const auto user = manifest.state.value("user", nlohmann::json::object());
    state.user().require_fit(user);
    const auto position = position_in(manifest, source);
    const bool copied =
        source.copy != nullptr && resumed->checkpoint.path() == source.copy->checkpoint->path();
    const auto durable = copied ? source.copy->newest : std::optional(manifest.step);
    run.text = nlohmann::json{{"position", position.to_json()},
                              {"user", user},
                              {"durable", durable ? static_cast<std::int64_t>(*durable) : -1}}
                   .dump();
    if (source.target != nullptr && !copied) leave_branch(source, *resumed);
    const bool own = resumed->in_directory && manifest.lineage;
    run.parent = own ? manifest.lineage->parent : resumed->lineage.parent;
    if (own) run.states = manifest.lineage->replaced;
    if (run.states.size() == ckpt::kMaxReplaced) run.states.erase(run.states.begin());
    run.states.push_back(manifest.crc32c);
    run.lineage = std::move(resumed->lineage);
    source.context.log.line(
        fmt::format("resumed from {} (step {}, made by {})",
                    copied ? "a copy in the memory of this node" : run.checkpoint.string(),
                    manifest.step, counted(manifest.world_size, "rank")));
    return run;
  } catch (const ckpt::MismatchError& e) {
    throw UsageError(e.what());
  } catch (const nlohmann::json::exception&) {
    throw UsageError(
        fmt::format("{0} was not made by a training run, so there is nothing to resume; to start "
                    "from its weights, use --init-from {0} with a new --checkpoint-dir",
                    run.checkpoint.string()));
  }
}

}  // namespace ddp::train
