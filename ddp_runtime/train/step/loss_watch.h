// SPDX-License-Identifier: Apache-2.0
// Informs all ranks which of them had a loss that is not finite, by sending one byte per rank while
// backward runs. Used by runs that skip such steps; runs that stop instead rely on the check in
// DistributedDataParallel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::train {

class LossWatch {
 public:
  explicit LossWatch(comm::Group& group) : group_(group) {}

  // Collective, before the last backward of a step.
  void ask(bool finite);
  // Waits for the result: the ranks of the job with a loss that is not finite. The same on all
  // ranks.
  std::vector<int> answer();

 private:
  comm::Group& group_;
  std::shared_ptr<std::vector<std::uint8_t>> flags_;
  comm::Work work_;
};

}  // namespace ddp::train
