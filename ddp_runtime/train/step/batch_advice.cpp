// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/batch_advice.h"

#include <fmt/format.h>

#include <string_view>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::train {

void throw_with_batch_advice(const c10::Error& error, std::int64_t batch, std::int64_t blocks) {
  const std::string_view text = error.what_without_backtrace();
  if (text.find("Expected more than 1 value per channel when training") == std::string_view::npos) {
    return;
  }
  throw UsageError(
      fmt::format("batch normalization needs more than one value per channel to train, and a "
                  "{} has {}; use {}",
                  blocks > 0 ? "block" : "micro-batch on a rank", counted(batch, "sample"),
                  blocks > 0 ? "fewer --blocks or a larger --global-batch"
                             : "a larger --batch, or a larger --global-batch or fewer ranks"));
}

}  // namespace ddp::train
