// SPDX-License-Identifier: Apache-2.0
// Which texts may be node names, checked before they reach scontrol, a file or a command line.
#pragma once

#include <string_view>

namespace ddp::check {

// 1 to 255 letters, digits, dots, underscores and hyphens, not starting with a hyphen. "ALL" is
// rejected: scontrol takes it for every node of the cluster. So is a list such as "n[1-9]".
bool is_node_name(std::string_view text) noexcept;

}  // namespace ddp::check
