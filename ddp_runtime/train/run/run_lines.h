// SPDX-License-Identifier: Apache-2.0
// The lines of a run about its epochs and its end. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "ddp_runtime/train/objective/best_evaluation.h"
#include "ddp_runtime/train/objective/evaluation_result.h"
#include "ddp_runtime/train/run/progress.h"

namespace ddp::train {

// "eval loss 0.1234, accuracy 0.9876, top5 0.9990" with ", " between them. A custom loss has no
// accuracy.
std::string evaluation_text(const Evaluation& evaluation, const char* between);

// "epoch 2/5  step 120  train loss 0.5  eval loss 0.4  800 samples/s  ..". `evaluation`: null
// without one.
std::string epoch_line(const ProgressPoint& point, double train_loss, const Evaluation* evaluation,
                       const std::string& share_done);

// Why training ended before its last step: a callback asked for it, or no evaluation was better
// than the best one for some epochs.
std::string stopped_by_callback_line(std::int64_t epoch);
std::string no_better_line(const BestValue& best, BestMetric metric);

// For a run that had finished before this job. `evaluation`: null without one.
// `step`: 0 if the weights are the initial ones.
// `step`: 0 for the initial weights. `average`: of the weights, instead of themselves.
std::string evaluated_line(std::int64_t step, bool average, const Evaluation& evaluation,
                           std::uint32_t parameters_crc32c);
// After an evaluation of weights of which there is an average with this decay.
std::string average_left_line(double decay);
std::string nothing_to_do_line(std::int64_t step, bool stopped_early, const Evaluation* evaluation,
                               std::uint32_t parameters_crc32c);

}  // namespace ddp::train
