// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/checkpoint_interval.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/duration.h"
#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/train/options/option_limits.h"
#include "ddp_runtime/train/options/run_table.h"

namespace ddp::train {

void set_checkpoint_interval(CheckpointOptions& options, const std::string& text) {
  options.every_epoch = text == "epoch";
  options.every_auto = text == "auto";
  options.every_steps = 0;
  options.every_seconds = 0;
  if (options.every_epoch || options.every_auto) return;
  if (const auto seconds = parse_duration(text)) {
    options.every_seconds = *seconds;
    return;
  }
  const auto steps = parse_decimal(text, static_cast<std::uint64_t>(kMaxSteps));
  if (steps.value_or(0) == 0) {
    throw UsageError(
        fmt::format("--checkpoint-every takes a number of steps, a time such as 90s, 10min or "
                    "1h30min, 'epoch' or 'auto', not '{}'",
                    text));
  }
  options.every_steps = static_cast<std::int64_t>(*steps);
}

void set_memory_interval(CheckpointOptions& options, const std::string& text) {
  options.memory_auto = text == "auto";
  options.memory_steps = 0;
  options.memory_seconds = 0;
  if (options.memory_auto || text.empty()) return;
  if (const auto seconds = parse_duration(text)) {
    options.memory_seconds = *seconds;
    return;
  }
  const auto steps = parse_decimal(text, static_cast<std::uint64_t>(kMaxSteps));
  if (steps.value_or(0) == 0) {
    throw UsageError(
        fmt::format("--checkpoint-memory takes a number of steps, a time such as 30s, or 'auto', "
                    "not '{}'",
                    text));
  }
  options.memory_steps = static_cast<std::int64_t>(*steps);
}

void set_keep_every(CheckpointOptions& options, const std::string& text) {
  options.keep_every_steps = options.keep_every_epochs = 0;
  std::string_view number = text;
  const bool epochs = text.ends_with("epoch") || text.ends_with("epochs");
  if (epochs) number = number.substr(0, number.rfind("epoch"));
  const auto most = static_cast<std::uint64_t>(epochs ? kMaxEpochs : kMaxSteps);
  const auto value = parse_decimal(number, most);
  if (value.value_or(0) == 0) {
    throw UsageError(fmt::format(
        "--keep-every takes a number of steps, or of epochs such as 5epochs, not '{}'", text));
  }
  (epochs ? options.keep_every_epochs : options.keep_every_steps) =
      static_cast<std::int64_t>(*value);
}

std::string kept_checkpoints_text(const CheckpointOptions& options) {
  std::vector<std::string> parts = {"the last " + with_commas(options.keep_last)};
  const auto every = [&](std::int64_t number, const char* thing) {
    if (number == 1) parts.push_back(fmt::format("every {} for good", thing));
    if (number > 1)
      parts.push_back(fmt::format("every {} {}s for good", with_commas(number), thing));
  };
  every(options.keep_every_steps, "step");
  every(options.keep_every_epochs, "epoch");
  if (options.keep_best) {
    std::string text = "the best";
    if (options.best_metric != "loss") text += " by " + options.best_metric;
    parts.push_back(std::move(text));
  }
  const auto last = parts.back();
  parts.pop_back();
  return parts.empty() ? last : join(parts, ", ") + " and " + last;
}

std::string memory_interval_text(const CheckpointOptions& options) {
  CheckpointOptions memory;
  memory.every_epoch = false;
  memory.every_steps = options.memory_steps;
  memory.every_seconds = options.memory_seconds;
  memory.every_auto = options.memory_auto;
  return options.copies_in_memory() ? checkpoint_interval_text(memory) : "";
}

std::string checkpoint_interval_text(const CheckpointOptions& options) {
  std::vector<std::string> parts;
  if (options.every_auto) parts.emplace_back("Young interval");
  if (options.every_seconds > 0) parts.push_back(rounded_duration(options.every_seconds));
  if (options.every_steps > 0) {
    parts.push_back(options.every_steps == 1 ? "step"
                                             : with_commas(options.every_steps) + " steps");
  }
  if (options.every_epoch) parts.emplace_back("epoch");
  return parts.empty() ? "run" : join(parts, " and ");
}

}  // namespace ddp::train
