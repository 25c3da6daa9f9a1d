// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/directory/best_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/train/checkpoint/write/shard_report.h"
#include "ddp_runtime/train/checkpoint/write/write_partition.h"
#include "ddp_runtime/train/options/run_difference.h"
#include "ddp_runtime/train/ranks/rank_agreement.h"
#include "ddp_runtime/train/state/array_views.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/retention.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::train {
namespace {

std::optional<double> finite(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<double> number_in(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return finite(found->get<double>());
}

nlohmann::json object_in(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? *found : nlohmann::json::object();
}

// Returns nullopt if the checkpoint is damaged.
std::optional<ckpt::Manifest> manifest_of(const ckpt::Candidate& candidate) {
  try {
    return ckpt::Checkpoint::open(candidate.path).manifest();
  } catch (const ckpt::DamagedError&) {
    return std::nullopt;
  }
}

// With a single writer, rank 0 writes all of it.
ShardReport write_share(const SaveContext& context, const std::vector<StateArray>& arrays,
                        const ckpt::CheckpointInfo& info, const ckpt::SaveId& id,
                        ckpt::CheckpointDirectory directory) {
  ShardReport report;
  const int rank = context.group.rank();
  const auto writers =
      writers_of(arrays, std::numeric_limits<std::uint64_t>::max(), context.group.size());
  if (!std::ranges::binary_search(writers, rank)) return report;
  try {
    const auto share = on_host(share_of(context.state, arrays, writers, rank));
    report.record = directory.write_shard(id, shard_name(writers, rank), array_views(share),
                                          shard_attributes(info));
  } catch (const std::exception& e) {
    report.problem = e.what();
  }
  return report;
}

// Whether a checkpoint is of another run, or was evaluated on other data.
bool is_of_another_run(const ckpt::Manifest& manifest, const std::string& lineage_run,
                       const nlohmann::json& run) {
  if (manifest.lineage && manifest.lineage->run != lineage_run) return true;
  return run_differences(object_in(manifest.state, "run"), run, false).other_data;
}

}  // namespace

std::optional<double> cost_of(const Evaluation& evaluation, BestMetric metric) {
  return finite(metric == BestMetric::loss ? evaluation.loss : -evaluation.accuracy);
}

std::optional<double> cost_in(const nlohmann::json& state, BestMetric metric) {
  const auto evaluation = object_in(state, "evaluation");
  if (metric == BestMetric::accuracy) {
    const auto accuracy = number_in(evaluation, "accuracy");
    return accuracy ? std::optional(-*accuracy) : std::nullopt;
  }
  if (!evaluation.empty()) return number_in(evaluation, "loss");
  return number_in(object_in(state, "position"), "best_loss");
}

nlohmann::json evaluation_to_json(const Evaluation& evaluation) {
  auto json = nlohmann::json::object();
  if (finite(evaluation.loss)) json["loss"] = evaluation.loss;
  if (finite(evaluation.accuracy)) json["accuracy"] = evaluation.accuracy;
  return json;
}

BestCheckpoint::BestCheckpoint(const SaveContext& context, const DirectoryClaim& claim)
    : context_(context),
      claim_(claim),
      best_(context.options.directory / ckpt::kBestName),
      metric_(parse_best_metric(context.options.best_metric)) {}

// Compares with what remains when save() has set others aside and replaced the one of `step`.
bool BestCheckpoint::wants(std::uint64_t step, const std::string& lineage_run,
                           const Evaluation& evaluation) const {
  const auto cost = cost_of(evaluation, metric_);
  if (!cost) return false;
  for (const auto& candidate : ckpt::CheckpointDirectory(best_).candidates()) {
    if (candidate.step >= step) continue;
    const auto manifest = manifest_of(candidate);
    if (!manifest || is_of_another_run(*manifest, lineage_run, context_.run)) continue;
    const auto other = cost_in(manifest->state, metric_);
    if (other && *other <= *cost) return false;
  }
  return true;
}

std::string BestCheckpoint::save(std::uint64_t step, const std::vector<StateArray>& arrays,
                                 ckpt::CheckpointInfo info, const Evaluation& evaluation) {
  auto& group = context_.group;
  info.state["evaluation"] = evaluation_to_json(evaluation);
  ckpt::SaveId id{step, context_.owner};  // not yet that of rank 0
  auto problem = problem_on_leader(group, [&] {
    set_aside_others(step, info.lineage ? info.lineage->run : std::string());
    id = directory().begin(step, context_.owner);
  });
  if (!problem.empty()) return problem;
  id = ckpt::SaveId::from_json(nlohmann::json::parse(group.broadcast_text(id.to_json().dump(), 0)));
  const auto reports =
      group.all_gather_text(to_text(write_share(context_, arrays, info, id, directory())));
  if (!context_.leads()) return {};
  try {
    commit(id, reports, info);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  return problem;
}

ckpt::CheckpointDirectory BestCheckpoint::directory() const {
  ckpt::SaveOptions saving;
  saving.if_exists = ckpt::IfExists::replace;
  saving.before_publishing = [this] { claim_.require(); };
  return ckpt::CheckpointDirectory(best_, std::move(saving));
}

// On rank 0. The checkpoint before it is removed only after the new one is safe. The step may
// already exist: a run that was killed after saving it repeats it after resuming.
void BestCheckpoint::commit(const ckpt::SaveId& id, const std::vector<std::string>& reports,
                            const ckpt::CheckpointInfo& info) {
  auto checkpoints = directory();
  const auto shards = collect_shards(reports);
  if (!shards.problem.empty()) {
    checkpoints.abandon(id);
    throw RuntimeError(shards.problem);
  }
  const auto saved = checkpoints.commit(id, shards.records, info);
  say(saved.notes);
  path_ = saved.path;
  ckpt::Retention retention(best_, context_.owner);
  retention.remember_across_restarts();
  say(retention.apply({.keep_last = 1, .newest = id.step}).notes);
}

void BestCheckpoint::say(const std::vector<std::string>& notes) const {
  for (const auto& note : notes) context_.log.line(fmt::format("checkpoint: {}", note));
}

void BestCheckpoint::set_aside_others(std::uint64_t step, const std::string& lineage_run) const {
  abandon_after(step);
  ckpt::CheckpointDirectory checkpoints(best_);
  std::vector<std::uint64_t> others;
  std::optional<std::uint64_t> newest;
  for (const auto& candidate : checkpoints.candidates()) {
    const auto manifest = manifest_of(candidate);
    if (manifest && is_of_another_run(*manifest, lineage_run, context_.run)) {
      others.push_back(candidate.step);
    } else if (!newest) {
      newest = candidate.step;
    }
  }
  for (const auto& name : checkpoints.set_aside(others, newest, context_.owner)) {
    context_.log.line(
        fmt::format("checkpoint: the best checkpoint of another run is kept as {}", name.string()));
  }
}

void BestCheckpoint::abandon_after(std::uint64_t step) const {
  for (const auto& name :
       ckpt::CheckpointDirectory(best_).set_aside_later_than(step, context_.owner)) {
    context_.log.line(fmt::format(
        "checkpoint: the best checkpoint of an abandoned branch is kept as {}", name.string()));
  }
}

}  // namespace ddp::train
