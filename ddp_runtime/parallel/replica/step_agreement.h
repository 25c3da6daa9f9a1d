// SPDX-License-Identifier: Apache-2.0
// Checks that all ranks are in the same step, with one tiny collective per step that runs during
// backward. Finds errors that no other collective detects: a rank that skipped a step, a different
// number of micro-batches, a different loss scale, a loss that is NaN, a different collective of
// the same length.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp {

struct StepFacts {
  std::int64_t step = 0;  // counted by DistributedDataParallel
  std::int64_t micro_batches = 1;
  std::int64_t tag = 0;  // set by the program, such as the position in the data
  bool loss_is_finite = true;
  std::int64_t loss_step = 0;   // the step of that loss: this one or, on a device, the previous one
  std::int64_t buffers = 0;     // fingerprint, in an agreement about buffers that were added
  std::int64_t parameters = 0;  // checksum, in steps that compare parameters
  std::vector<std::size_t> gathers = {};  // units that were gathered in forward
  // Their names, one per line; called only if they differ. May be empty.
  std::function<std::string()> gathered = {};
};

class StepAgreement {
 public:
  explicit StepAgreement(comm::Group& group) : group_(group) {}

  // Starts the check; the facts must not change until check().
  void ask(const StepFacts& facts);
  // Waits for the result. Returns whether check() will return true; the same on all ranks.
  [[nodiscard]] bool holds();
  // Waits for the result. Throws RuntimeError, on all ranks, naming the ranks that differ from rank
  // 0 or whose loss is not finite, or the different collectives that they called. Returns false, on
  // all ranks, if only their parameters differ.
  [[nodiscard]] bool check();
  // Collective, between two steps. Throws RuntimeError, on all ranks, naming the ranks whose loss
  // of this step is not finite.
  void require_finite_loss(std::int64_t step, bool finite);

 private:
  bool steps_differ() const noexcept;
  bool parameters_differ() const noexcept;
  [[noreturn]] void explain();
  void explain_gathers();
  [[noreturn]] void explain_histories();

  comm::Group& group_;
  StepFacts facts_;
  std::uint64_t history_ = 0;  // hash of the group's collectives before ask()
  using Words = std::array<std::int64_t, 5>;
  std::shared_ptr<Words> words_ = std::make_shared<Words>();
  comm::Work answer_;
  bool asked_ = false;
};

}  // namespace ddp
