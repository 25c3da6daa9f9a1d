// SPDX-License-Identifier: Apache-2.0
// MASTER_ADDR as a user gives it.
#pragma once

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace ddp::launch {

// True for a host name or an address. One colon is "host:port": an IPv6 address has at least two.
inline bool is_given_host(std::string_view text) noexcept {
  return is_host_or_address(text) && std::count(text.begin(), text.end(), ':') != 1;
}

}  // namespace ddp::launch
