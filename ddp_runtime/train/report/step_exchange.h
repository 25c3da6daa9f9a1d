// SPDX-License-Identifier: Apache-2.0
// Exchanges step times between ranks, to separate waiting for other ranks from time on the wire.
//
// Note [Windows]
// Steps are compared in windows. At the end of a window, all ranks start an all_reduce to find the
// shortest duration of each of their collectives. It has long completed by the end of the next
// window; each rank then splits its own times (collective_times.h), and starts another all_reduce
// to compute the mean wait in each of those steps. So no rank waits for a comparison, and memory
// does not grow with the number of steps. Windows double in length from one step to at most
// kMaxSteps steps or about kSeconds; all ranks use the same length, based on times from the same
// all_reduce.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/profile/collective_times.h"

namespace ddp::train {

class StepExchange {
 public:
  static constexpr std::int64_t kMaxSteps = 64;
  static constexpr double kSeconds = 10;
  static constexpr std::size_t kMaxCollectives = 1024;  // per window; later steps are not compared

  // `skip`: number of untypical steps at the start to exclude from the comparison.
  StepExchange(comm::Group& group, std::size_t skip) : group_(group), skip_(skip) {}

  // Call after each step; all ranks must call it in the same steps. Collective at the end of a
  // window.
  void after_step(const profile::StepCollectives& step, double seconds);
  // Collective: compares the remaining steps.
  void finish();

  // This rank's waits in the windows compared so far.
  const profile::WaitTotals& waits() const noexcept { return waits_; }
  // Duration of a step on the slowest rank, the same on all ranks; nullopt if not yet known.
  std::optional<double> agreed_step_seconds() const noexcept { return agreed_; }

 private:
  using Values = std::shared_ptr<std::vector<float>>;

  struct Window {
    std::vector<profile::StepCollectives> steps;  // the compared steps
    std::size_t collectives = 0;
    std::int64_t all_steps = 0;
    double seconds = 0;
  };
  // A window during its two reductions: of the shortest durations, then of the mean waits.
  struct Compared {
    Window window;
    Values values;
    comm::Work work;
  };
  struct Weighed {
    std::vector<profile::WaitSplit> steps;
    Values values;
    comm::Work work;
  };

  void end_window();
  void take_shortest();
  void take_means();

  comm::Group& group_;
  std::size_t skip_;
  std::int64_t length_ = 1;  // of the current window
  Window window_;
  std::optional<Compared> compared_;
  std::optional<Weighed> weighed_;
  profile::WaitTotals waits_;
  std::optional<double> agreed_;
};

}  // namespace ddp::train
