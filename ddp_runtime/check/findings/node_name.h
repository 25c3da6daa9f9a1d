// SPDX-License-Identifier: Apache-2.0
// Validates node names before they reach scontrol, a file or a command line.
#pragma once

#include <string_view>

namespace ddp::check {

// Accepts 1 to 255 letters, digits, dots, underscores and hyphens that do not start with a hyphen.
// Rejects "ALL", which scontrol interprets as all nodes, and lists such as "n[1-9]".
bool is_node_name(std::string_view text) noexcept;

}  // namespace ddp::check
