// SPDX-License-Identifier: Apache-2.0
// What the ranks of a data-parallel training divide among themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/options.h"

namespace ddp {

// The stages of ZeRO (Rajbhandari et al., 2020); each includes those before it.
enum class Shard : std::uint8_t {
  none,
  optimizer,   // stage 1: the optimizer's state
  gradients,   // stage 2
  parameters,  // stage 3: a unit's parameters are whole only while it computes
};

struct ShardOptions {
  Shard shard = Shard::parameters;  // or gradients

  // Which modules are units, for Shard::parameters: names in which '*' stands for any characters
  // but a dot, such as "blocks.*". The model calls them through ddp::unit(). The parameters that
  // are in no unit are whole during the entire step, so units should have most of the parameters.
  std::vector<std::string> units = {};

  // Gives a unit's memory back between its forward and its backward. Without it, each unit is
  // gathered once per step instead of twice, and all of them are whole when forward ends.
  bool reshard_after_forward = true;

  // Without communication hooks, static_graph and checks of parameters, which no two ranks share.
  DataParallelOptions data_parallel = {};
};

}  // namespace ddp
