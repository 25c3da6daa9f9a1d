// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/channel_end.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/host.h"

namespace ddp::comm {
namespace {

std::chrono::milliseconds tick_of(const LivenessLimits& limits) {
  return std::max<std::chrono::milliseconds>(limits.heartbeat / 4, std::chrono::milliseconds(1));
}

}  // namespace

ChannelEnd::ChannelEnd(FailureState& failures, ChannelOptions options)
    : failures_(failures), options_(std::move(options)), clock_(2 * tick_of(options_.liveness)) {}

std::chrono::milliseconds ChannelEnd::tick() const {
  return tick_of(options_.liveness);
}

bool ChannelEnd::tick_is_due() {
  if (clock_.now() < next_tick_) return false;
  next_tick_ = clock_.now() + tick();
  return true;
}

// By the time of the others: a rank that could not run for some seconds, on a machine that is busy,
// is to be heard of as soon as it runs again.
bool ChannelEnd::heartbeat_is_due() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_heartbeat_) return false;
  next_heartbeat_ = now + options_.liveness.heartbeat;
  return true;
}

void ChannelEnd::end_if_stuck() {
  if (!options_.end_process || !failures_.failed()) return;
  if (!failed_at_) failed_at_ = clock_.now();
  if (clock_.now() < *failed_at_ + options_.liveness.exit) return;
  failed_at_ = clock_.now();  // limits the calls if end_process() returns, as in tests
  options_.end_process();
}

FailureKind kind_of(LossKind kind) {
  switch (kind) {
    case LossKind::killed:
      return FailureKind::killed;
    case LossKind::stopped:
      return FailureKind::stopped;
    case LossKind::unreachable:
      break;
  }
  return FailureKind::unreachable;
}

std::string process_name() {
  const std::string host = host_name();
  return fmt::format("{}, process {}", host, getpid());
}

Failure exited_unexpectedly(int rank, const std::string& who) {
  const Loss loss{rank, who, LossKind::killed};
  return {.rank = rank,
          .text = describe(std::span(&loss, 1), {}),
          .lost = true,
          .kind = FailureKind::killed};
}

}  // namespace ddp::comm
