// Which texts may be the name of a node, before they reach scontrol, a file or a command line.
#pragma once

#include <string_view>

namespace ddp::check {

// 1 to 255 letters, digits, dots, underscores and hyphens, not beginning with a hyphen. "ALL" is
// not a name: scontrol takes it for every node of the cluster. Neither is a list as "n[1-9]".
bool is_node_name(std::string_view text) noexcept;

}  // namespace ddp::check
