// SPDX-License-Identifier: Apache-2.0
// The parameters and buffers that a replica leaves alone, see DataParallelOptions::ignore.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp {

class IgnoredTensors {
 public:
  // Collective. Throws UsageError, the same on all ranks, if the ranks' lists differ, if an entry
  // matches nothing on some rank, or if a tensor that has several names is ignored under some of
  // them only.
  IgnoredTensors(const torch::nn::Module& module, std::vector<std::string> entries,
                 comm::Group& group);

  bool contains(const std::string& name) const noexcept;
  std::vector<NamedTensor> removed_from(std::vector<NamedTensor> tensors) const;

 private:
  std::string problem_with(const torch::nn::Module& module) const;

  std::vector<std::string> entries_;  // sorted
};

}  // namespace ddp
