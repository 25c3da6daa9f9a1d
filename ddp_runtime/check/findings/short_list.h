// SPDX-License-Identifier: Apache-2.0
// Lists that show only their beginning.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::check {

// "mlx5_0:1 mlx5_1:1 and 6 more"
inline std::string short_list(const std::vector<std::string>& names, std::size_t most = 4,
                              std::string_view separator = " ") {
  const std::size_t shown = std::min(names.size(), most);
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(shown);
  const std::string more =
      shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(names.begin(), end, separator), more);
}

}  // namespace ddp::check
