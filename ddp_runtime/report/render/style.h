// SPDX-License-Identifier: Apache-2.0
// The style sheet of the HTML report.
#pragma once

#include <string_view>

namespace ddp::report {

std::string_view style_sheet() noexcept;

}  // namespace ddp::report
