// SPDX-License-Identifier: Apache-2.0
// Which texts may be names and values here.
#pragma once

#include <string_view>

namespace ddp::fabric {

// A letter or _, then letters, digits and _; at most 128.
bool is_variable_name(std::string_view text) noexcept;

// Something that can be set in an environment and shown on a line: printable ASCII, at most 1024.
bool is_plain_value(std::string_view text) noexcept;

// A name as Linux gives to interfaces (at most 15 characters) and RDMA devices (63), which no
// library takes for a list or a pattern: printable, without ",:/ ", not beginning with ^ or =.
bool is_interface_name(std::string_view text) noexcept;
bool is_device_name(std::string_view text) noexcept;

}  // namespace ddp::fabric
