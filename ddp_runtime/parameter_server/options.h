// SPDX-License-Identifier: Apache-2.0
// The update rule of a parameter server, and how far its workers may diverge.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::parameter_server {

struct ServerOptions {
  // A rank begins its step t + 1 only when every rank has completed t - staleness steps. This
  // limits how far it may be ahead of the slowest rank. 0: all ranks do the same step at the same
  // time.
  std::int64_t staleness = 0;
  double momentum = 0;  // see Note [Momentum among many]
  double weight_decay = 0;
  std::size_t decayed = 0;  // weight decay applies to the elements before this one
};

}  // namespace ddp::parameter_server
