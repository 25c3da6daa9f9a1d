// SPDX-License-Identifier: Apache-2.0
// Compares what the ranks pass to a collective, so that ranks whose tensors differ fail with a
// sentence about both, and do not exchange the wrong data.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "ddp_runtime/comm/group/group.h"

namespace ddp {

class ShapeComparison {
 public:
  // Begins an all-reduce of 16 bytes. Collective. `what` names the operation ("all_reduce"), and
  // `mine` must be the same on all ranks.
  ShapeComparison(comm::Group& group, std::string what, std::string mine);
  // Waits. Throws UsageError on all ranks if they differ; communicates again only then.
  void finish();

 private:
  comm::Group& group_;
  std::string what_;
  std::string mine_;
  std::shared_ptr<std::array<std::int64_t, 2>> extremes_;
  comm::Work work_;
};

// "a tensor of type Float and shape [2, 3] on a CPU".
std::string describe_tensor(const torch::Tensor& tensor);

}  // namespace ddp
