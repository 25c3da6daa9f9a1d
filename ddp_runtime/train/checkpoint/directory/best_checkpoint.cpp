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

std::vector<ckpt::Candidate> checkpoints_of(const std::vector<BestEntry>& entries, bool in_best) {
  std::vector<ckpt::Candidate> found;
  for (const auto& entry : entries) {
    if (entry.in_best == in_best) found.push_back(entry.checkpoint);
  }
  return found;
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

void sort_best_first(std::vector<BestEntry>& entries) {
  const auto key = [](const BestEntry& entry) {
    return std::pair(entry.cost.value_or(std::numeric_limits<double>::infinity()),
                     entry.checkpoint.step);
  };
  std::sort(entries.begin(), entries.end(),
            [&](const BestEntry& a, const BestEntry& b) { return key(a) < key(b); });
}

bool is_among_best(std::optional<double> cost, const std::vector<BestEntry>& entries,
                   std::size_t keep) {
  if (!cost) return false;
  const auto better = std::count_if(entries.begin(), entries.end(), [&](const BestEntry& entry) {
    return entry.cost && *entry.cost <= *cost;
  });
  return static_cast<std::size_t>(better) < keep;
}

BestCheckpoint::BestCheckpoint(const SaveContext& context, const DirectoryClaim& claim)
    : context_(context),
      claim_(claim),
      best_(context.options.directory / ckpt::kBestName),
      next_best_(context.options.directory / ckpt::kNextBestName),
      keep_(static_cast<std::size_t>(context.options.keep_best)),
      metric_(parse_best_metric(context.options.best_metric)) {}

std::vector<BestEntry> BestCheckpoint::entries() const {
  std::vector<BestEntry> found;
  for (const auto& directory : {best_, next_best_}) {
    for (auto& candidate : ckpt::CheckpointDirectory(directory).candidates()) {
      const auto manifest = manifest_of(candidate);
      if (!manifest) continue;
      found.push_back(
          {std::move(candidate), cost_in(manifest->state, metric_), directory == best_});
    }
  }
  sort_best_first(found);
  return found;
}

// The checkpoints that remain when save() has set others aside and replaced the one of `step`.
std::vector<BestEntry> BestCheckpoint::comparable(std::uint64_t step,
                                                  const std::string& lineage_run) const {
  auto found = entries();
  std::erase_if(found, [&](const BestEntry& entry) {
    if (entry.checkpoint.step >= step) return true;
    const auto manifest = manifest_of(entry.checkpoint);
    return !manifest || is_of_another_run(*manifest, lineage_run, context_.run);
  });
  return found;
}

bool BestCheckpoint::wants(std::uint64_t step, const std::string& lineage_run,
                           const Evaluation& evaluation) const {
  return is_among_best(cost_of(evaluation, metric_), comparable(step, lineage_run), keep_);
}

std::string BestCheckpoint::save(std::uint64_t step, const std::vector<StateArray>& arrays,
                                 ckpt::CheckpointInfo info, const Evaluation& evaluation) {
  auto& group = context_.group;
  info.state["evaluation"] = evaluation_to_json(evaluation);
  Draft draft{{step, context_.owner}, false};  // not yet that of rank 0
  auto problem = problem_on_leader(group, [&] { draft = begin(step, info, evaluation); });
  if (!problem.empty()) return problem;
  const auto text = nlohmann::json{draft.id.to_json(), draft.is_best}.dump();
  const auto agreed = nlohmann::json::parse(group.broadcast_text(text, 0));
  draft = {ckpt::SaveId::from_json(agreed.at(0)), agreed.at(1).get<bool>()};
  const auto mine = write_share(context_, arrays, info, draft.id, directory_of(draft));
  const auto reports = group.all_gather_text(to_text(mine));
  if (group.rank() != 0) return {};
  try {
    commit(draft, reports, info);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  return problem;
}

// On rank 0.
BestCheckpoint::Draft BestCheckpoint::begin(std::uint64_t step, const ckpt::CheckpointInfo& info,
                                            const Evaluation& evaluation) {
  const auto lineage_run = info.lineage ? info.lineage->run : std::string();
  Draft draft;
  draft.is_best = is_among_best(cost_of(evaluation, metric_), comparable(step, lineage_run), 1);
  set_aside_others(step, lineage_run);
  draft.id = directory_of(draft).begin(step, context_.owner);
  return draft;
}

ckpt::CheckpointDirectory BestCheckpoint::directory_of(const Draft& draft) const {
  ckpt::SaveOptions saving;
  saving.if_exists = ckpt::IfExists::replace;
  saving.before_publishing = [this] { claim_.require(); };
  return ckpt::CheckpointDirectory(draft.is_best ? best_ : next_best_, std::move(saving));
}

// On rank 0. The surplus checkpoint is removed only after the new one is safe. The step may already
// exist: a run that was killed after saving it repeats it after resuming.
void BestCheckpoint::commit(const Draft& draft, const std::vector<std::string>& reports,
                            const ckpt::CheckpointInfo& info) {
  auto directory = directory_of(draft);
  const auto shards = collect_shards(reports);
  if (!shards.problem.empty()) {
    directory.abandon(draft.id);
    throw RuntimeError(shards.problem);
  }
  const auto saved = directory.commit(draft.id, shards.records, info);
  for (const auto& note : saved.notes) context_.log.line(fmt::format("checkpoint: {}", note));
  if (draft.is_best) path_ = saved.path;
  // The same step in the other directory is from before the resume.
  const auto& other = draft.is_best ? next_best_ : best_;
  for (const auto& candidate : ckpt::CheckpointDirectory(other).candidates()) {
    if (candidate.step != draft.id.step) continue;
    ckpt::Retention(other, context_.owner).keep_first({&candidate, 1}, 0);
  }
  arrange();
  remove_surplus();
}

void BestCheckpoint::set_aside_others(std::uint64_t step, const std::string& lineage_run) const {
  set_aside_after(step);
  for (const auto& directory : {best_, next_best_}) {
    ckpt::CheckpointDirectory checkpoints(directory);
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
      context_.log.line(fmt::format("checkpoint: the best checkpoint of another run is kept as {}",
                                    name.string()));
    }
  }
}

void BestCheckpoint::abandon_after(std::uint64_t step) const {
  set_aside_after(step);
  try {
    arrange();
  } catch (const std::exception& e) {
    // The next evaluation tries again.
    context_.log.line(fmt::format("checkpoint: no best checkpoint was chosen from {}: {}",
                                  next_best_.string(), e.what()));
  }
}

void BestCheckpoint::set_aside_after(std::uint64_t step) const {
  for (const auto& directory : {best_, next_best_}) {
    for (const auto& name :
         ckpt::CheckpointDirectory(directory).set_aside_later_than(step, context_.owner)) {
      context_.log.line(fmt::format(
          "checkpoint: the best checkpoint of an abandoned branch is kept as {}", name.string()));
    }
  }
}

// Moves the best one to best/ first, so that best/ is empty only if it was.
void BestCheckpoint::arrange() const {
  const auto sorted = entries();
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto& [checkpoint, cost, in_best] = sorted[i];
    const bool belongs_in_best = i == 0;
    // With only one to keep, the others are about to be removed.
    if (belongs_in_best == in_best || (!belongs_in_best && keep_ == 1)) continue;
    ckpt::CheckpointDirectory(belongs_in_best ? best_ : next_best_)
        .adopt(checkpoint, context_.owner);
  }
}

// Removes the worst, also from best/ if a run that keeps only one has found another best.
void BestCheckpoint::remove_surplus() const {
  const auto sorted = entries();
  std::size_t keep = 1;
  for (const bool in_best : {true, false}) {
    ckpt::Retention retention(in_best ? best_ : next_best_, context_.owner);
    retention.remember_across_restarts();
    const auto report = retention.keep_first(checkpoints_of(sorted, in_best), keep);
    for (const auto& note : report.notes) context_.log.line(fmt::format("checkpoint: {}", note));
    if (!report.notes.empty()) return;  // perhaps the best one is damaged: delete no other
    keep = keep_ - 1;
  }
}

}  // namespace ddp::train
