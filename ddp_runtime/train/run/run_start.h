// SPDX-License-Identifier: Apache-2.0
// What a run checks and derives from its task and options before it trains.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/objective/objective.h"
#include "ddp_runtime/train/options/graph_hindrance.h"
#include "ddp_runtime/train/options/learning_rate.h"
#include "ddp_runtime/train/options/options.h"
#include "ddp_runtime/train/run/train_task.h"

namespace ddp::train {

// Collective. Returns the options with the batch of a rank. Called before anything is built from
// the options: ranks that differ would wait for each other in different places. `subject` is the
// model and the data, by name. Throws UsageError on all ranks.
TrainOptions same_on_all_ranks(comm::Group& group, const nlohmann::json& subject,
                               TrainOptions options);

// Called before anything is built on the module's memory, because it may convert the weights.
// Throws UsageError.
Objective objective_of(const TrainTask& task, const TrainOptions& options);

GraphTask graph_task_of(const TrainTask& task, int ranks);

// `base`: the rate of the optimizer.
LearningRate learning_rate_of(const TrainOptions& options, int ranks, double base);

// Ranks must draw different dropout masks, but a repeated run must draw the same masks again.
std::uint64_t generator_seed(std::uint64_t seed, int rank);

// Collective. Creates the directory, unless it is empty, and tries to write to it. A report that
// cannot be written later fails no run, so a mistake in the path would go unnoticed for hours.
// Throws UsageError on all ranks.
void require_report_directory(comm::Group& group, const std::filesystem::path& directory);

// Options that depend on evaluations need evaluation data. Throws UsageError.
void require_evaluation(const TrainTask& task, const TrainOptions& options);

}  // namespace ddp::train
