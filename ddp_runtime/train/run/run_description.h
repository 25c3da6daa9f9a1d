// SPDX-License-Identifier: Apache-2.0
// Descriptions of a run as JSON: of its model and data, and of everything that affects its results.
#pragma once

#include <nlohmann/json.hpp>

#include "ddp_runtime/data/sampler.h"
#include "ddp_runtime/train/run/train_task.h"

namespace ddp::train {

// The model and the data. Reads three samples of the data.
nlohmann::json describe_subject(const TrainTask& task);

// Everything that affects the results, for comparison of a resumed run with the saved one.
// `subject`: from describe_subject().
nlohmann::json describe_run(const nlohmann::json& subject, const TrainTask& task,
                            const TrainOptions& options, const data::BatchLayout& layout);

// What affects the results of an evaluation, for comparison with the run that saved the weights.
nlohmann::json describe_evaluation(const nlohmann::json& subject, const TrainTask& task,
                                   const TrainOptions& options);

// All that affects the results or the time of a step, for run.json.
nlohmann::json describe_settings(const TrainTask& task, const TrainOptions& options);

}  // namespace ddp::train
