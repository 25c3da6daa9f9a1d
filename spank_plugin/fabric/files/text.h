// SPDX-License-Identifier: Apache-2.0
// The syntax of names and values of variables, interfaces and devices.
#pragma once

#include <string_view>

namespace ddp::fabric {

// A letter or _, followed by letters, digits and _; at most 128 characters.
bool is_variable_name(std::string_view text) noexcept;

// Printable ASCII of at most 1024 characters, which fits an environment variable and a line of
// output.
bool is_plain_value(std::string_view text) noexcept;

// Names that Linux accepts for interfaces (at most 15 characters) and RDMA devices (at most 63),
// and that no library interprets as a list or a pattern: printable, without ",:/ ", not beginning
// with ^ or =.
bool is_interface_name(std::string_view text) noexcept;
bool is_device_name(std::string_view text) noexcept;

}  // namespace ddp::fabric
