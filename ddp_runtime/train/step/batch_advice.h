// SPDX-License-Identifier: Apache-2.0
// What to do about errors of libtorch that a larger batch avoids.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>

namespace ddp::train {

// Throws UsageError instead of `error` if it says that batch normalization has one value per
// channel, which depends on the model and its inputs; otherwise returns. `batch`: samples of a
// micro-batch on a rank. `blocks`: see TrainOptions; their size does not depend on the ranks.
void throw_with_batch_advice(const c10::Error& error, std::int64_t batch, std::int64_t blocks);

}  // namespace ddp::train
