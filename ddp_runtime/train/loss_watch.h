// Tells all ranks which of them had a loss that is not finite, with one byte per rank that travels
// while backward runs. For runs that leave such steps out; those that stop need no more than
// DistributedDataParallel's own check.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp_runtime/comm/group.h"

namespace ddp::train {

class LossWatch {
 public:
  explicit LossWatch(comm::Group& group) : group_(group) {}

  // Collective, before the last backward of a step.
  void ask(bool finite);
  // Waits for the answer: the ranks with a loss that is not finite, in order. The same everywhere.
  std::vector<int> answer();

 private:
  comm::Group& group_;
  std::shared_ptr<std::vector<std::uint8_t>> flags_;
  comm::Work work_;
};

}  // namespace ddp::train
