// SPDX-License-Identifier: Apache-2.0
// Gloo's all-reduce as PyTorch uses it, for comparison. Built only if Gloo's headers are installed.
#pragma once

#include <memory>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::bench {

class GlooPeer {
 public:
  virtual ~GlooPeer() = default;
  virtual void all_reduce(std::vector<float>& data) = 0;  // in place, sum
};

// Collective; connects by TCP over the interface that this host's name resolves to. Returns nullptr
// if Gloo is not built in.
std::unique_ptr<GlooPeer> make_gloo_peer(comm::Group& group);

}  // namespace ddp::bench
