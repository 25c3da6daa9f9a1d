// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/run_lines.h"

#include <fmt/format.h>

#include <cmath>

namespace ddp::train {

std::string evaluation_text(const Evaluation& evaluation, const char* between) {
  auto text = "eval loss " + value_text(evaluation.loss);
  if (!std::isnan(evaluation.accuracy)) {
    text += fmt::format("{}accuracy {}", between, value_text(evaluation.accuracy));
  }
  for (const auto& [name, value] : evaluation.metrics) {
    text += fmt::format("{}{} {}", between, name, value_text(value));
  }
  return text;
}

std::string epoch_line(const ProgressPoint& point, double train_loss, const Evaluation* evaluation,
                       const std::string& share_done) {
  return fmt::format("epoch {}/{}  step {}  train loss {}{}{}  {}", point.epoch + 1, point.epochs,
                     point.step, value_text(train_loss),
                     evaluation != nullptr ? "  " + evaluation_text(*evaluation, "  ") : "",
                     rate_text(point), share_done);
}

std::string stopped_by_callback_line(std::int64_t epoch) {
  return fmt::format("stopped early: a callback asked for it after epoch {}", epoch);
}

std::string no_better_line(const BestValue& best, BestMetric metric) {
  const double cost = best.cost.value_or(0);
  const auto value = metric == BestMetric::loss ? fmt::format("loss {:.4f}", cost)
                                                : fmt::format("accuracy {:.4f}", -cost);
  return fmt::format("stopped early: no better evaluation than {} for {} epochs", value,
                     best.epochs_since);
}

std::string evaluated_line(std::int64_t step, bool average, const Evaluation& evaluation,
                           std::uint32_t parameters_crc32c) {
  const auto what = step > 0 ? fmt::format("step {}", step) : "the initial weights";
  return fmt::format("evaluated {}{}: {}, parameters 0x{:08x}", what,
                     average ? ", the average (--ema)" : "", evaluation_text(evaluation, ", "),
                     parameters_crc32c);
}

std::string average_left_line(double decay) {
  return fmt::format(
      "this is of the weights themselves; the run evaluated their average, which --ema {} takes",
      decay);
}

std::string nothing_to_do_line(std::int64_t step, bool stopped_early, const Evaluation* evaluation,
                               std::uint32_t parameters_crc32c) {
  const auto why = stopped_early
                       ? fmt::format("stopped early at step {}; a longer patience", step)
                       : fmt::format("already finished at step {}; more epochs or steps", step);
  return fmt::format("nothing to do: the run {} would continue it: {}parameters 0x{:08x}", why,
                     evaluation != nullptr ? evaluation_text(*evaluation, ", ") + ", " : "",
                     parameters_crc32c);
}

}  // namespace ddp::train
