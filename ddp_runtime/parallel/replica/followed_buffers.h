// SPDX-License-Identifier: Apache-2.0
// The buffers of a module that take rank 0's values, including those that are added later.
//
// Note [Buffers that are added later]
// A rank notices by itself that its module has other buffers than before, so a step in which there
// is no change costs no communication. But if only some ranks have changed theirs, the others know
// nothing of it and do what they do in every step: they broadcast the buffers that they had, and
// their next collective is the step agreement. So a rank with a change does the same first. Then it
// asks for an agreement of its own, with its new list in it. This meets either those of the other
// ranks that have changed theirs, or the step agreement of a rank that has not, and then the rank
// with the change knows that the lists differ.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/ignored_tensors.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp {

class FollowedBuffers {
 public:
  // The module and `ignored` must outlive this object.
  FollowedBuffers(const torch::nn::Module& module, const IgnoredTensors& ignored);

  // Lists the module's buffers again. Returns nullopt if they are the same tensors as before, which
  // costs only a walk through the module; otherwise how they changed: "'mask' was registered".
  std::optional<std::string> update();
  // Collective, with the same list on all ranks.
  void broadcast(comm::Group& group) const;
  // The same on all ranks if their lists are.
  std::int64_t fingerprint() const { return fingerprint_of(followed_); }

 private:
  const torch::nn::Module& module_;
  const IgnoredTensors& ignored_;
  std::vector<torch::Tensor> seen_;  // all, as the walk meets them
  std::vector<NamedTensor> followed_;
};

}  // namespace ddp
