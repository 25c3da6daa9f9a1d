// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/switch_query.h"

#include <chrono>
#include <cstddef>

#include "base/subprocess.h"
#include "spank_plugin/launch/step/switch_map.h"

namespace ddp::launch {

std::string query_switch_map() {
  constexpr std::chrono::seconds kLimit{10};
  constexpr std::size_t kMaxOutput = 4U << 20U;
  const auto topology = output_of({"scontrol", "show", "topology"}, kLimit, kMaxOutput);
  return topology ? make_switch_map(*topology) : "";
}

}  // namespace ddp::launch
