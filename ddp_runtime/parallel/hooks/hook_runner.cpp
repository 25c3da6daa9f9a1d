// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/hooks/hook_runner.h"

#include <utility>

namespace ddp {

void HookRunner::start(GradientBucket bucket) {
  const torch::NoGradGuard no_grad;
  running_.push_back({std::move(bucket), std::nullopt});
  Running& running = running_.back();
  running.task.emplace(hook_(running.bucket));
  running.task->check();
}

std::vector<profile::CommunicationSpan> HookRunner::finish() {
  const torch::NoGradGuard no_grad;
  for (bool all_done = false; !all_done;) {
    all_done = true;
    for (Running& running : running_) {
      if (running.task->done()) continue;
      running.task->advance();
      running.task->check();
      all_done = all_done && running.task->done();
    }
  }
  std::vector<profile::CommunicationSpan> spans;
  for (const Running& running : running_) {
    spans.push_back(
        {running.bucket.name(), running.bucket.bytes(), running.bucket.communication()});
  }
  running_.clear();
  return spans;
}

}  // namespace ddp
