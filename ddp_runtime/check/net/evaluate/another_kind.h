// SPDX-License-Identifier: Apache-2.0
// Distinguishes a node that lost devices from a node of another kind, which never had them.
#pragma once

#include <cstddef>
#include <string>

namespace ddp::check {

// A node with fewer devices than most.
struct FewerDevices {
  int processors = 0;
  int usual_processors = 0;  // of the nodes that have them
  std::size_t as_few = 0;    // nodes with as few, including this one
  std::size_t nodes = 0;     // all nodes that are compared
};

// Why it may be another kind of node: it has another number of CPUs, or more than one node in four
// has as few devices, which are rarely lost on several nodes at the same time. Empty if nothing
// suggests that.
std::string sign_of_another_kind(const FewerDevices& node);

}  // namespace ddp::check
