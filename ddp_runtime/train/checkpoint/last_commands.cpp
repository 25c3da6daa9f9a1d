// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/last_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/duration.h"
#include "ddp_runtime/train/ranks/step_boundary.h"

namespace ddp::train {
namespace {

// Time for the last command of a process that must exit: SLURM kills it after 30 s.
constexpr double kLeavingSeconds = 10;

constexpr auto kLook = std::chrono::milliseconds(500);

// Rank 0's answer when no command runs any more; no text means "not yet".
constexpr const char* kCommandsOver = "over";

// On rank 0.
class LastCommands {
 public:
  LastCommands(const SaveContext& context, AfterSave& commands, bool leaving)
      : context_(context), commands_(commands), leaving_(leaving) {}

  // Returns kCommandsOver, or no text if a command still runs.
  std::string look() {
    // A job that is over, too, may be told to stop.
    const bool hurry = leaving_ || StopSignals::received() != 0;
    const double most = context_.options.after_save_limit_seconds;
    const double limit = hurry ? std::min(kLeavingSeconds, most) : most;
    const auto step = commands_.unfinished();
    bool over = !step || commands_.wait(kLook);
    if (!over && !std::exchange(said_waiting_, true)) {
      context_.log.line(fmt::format(
          "checkpoint: waiting up to {} for the command after the checkpoint of step {}",
          rounded_duration(limit), *step));
    }
    if (!over && seconds_since(begin_) >= limit) {
      commands_.stop();
      over = true;
      static_cast<void>(commands_.wait(2 * kLook));
      context_.log.warning(
          fmt::format("the command after the checkpoint of step {} was stopped, because the "
                      "run is over",
                      *step));
    }
    report_commands(context_, commands_);
    return over ? kCommandsOver : "";
  }

 private:
  const SaveContext& context_;
  AfterSave& commands_;
  const bool leaving_;
  const Clock::time_point begin_ = Clock::now();
  bool said_waiting_ = false;
};

}  // namespace

// Checks repeatedly and briefly, as DirectoryClaim does: the other ranks must not block in one long
// wait for rank 0.
void finish_commands(const SaveContext& context, AfterSave* commands, bool leaving) {
  std::optional<LastCommands> last;
  if (commands != nullptr) last.emplace(context, *commands, leaving);
  while (context.group.broadcast_text(last ? last->look() : "", 0) != kCommandsOver) {
  }
}

void report_commands(const SaveContext& context, AfterSave& commands) {
  for (const auto& message : commands.take_messages()) context.log.warning(message);
}

}  // namespace ddp::train
