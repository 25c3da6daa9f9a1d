// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/another_kind.h"

#include <fmt/format.h>

#include "base/text.h"

namespace ddp::check {

std::string sign_of_another_kind(const FewerDevices& node) {
  constexpr std::size_t kRarely = 4;  // at most one node in four
  if (node.processors != node.usual_processors) {
    return fmt::format("it has {} CPUs and the others {}, so it may be another kind of node",
                       node.processors, node.usual_processors);
  }
  if (node.as_few < 2 || kRarely * node.as_few <= node.nodes) return {};
  return fmt::format("{} have as few, so they may be another kind of node",
                     counted(node.as_few, "node"));
}

}  // namespace ddp::check
