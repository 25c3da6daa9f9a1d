// SPDX-License-Identifier: Apache-2.0
// Charts as inline SVG. Colors come from the page's style sheet by class, so that they follow light
// and dark mode.
#pragma once

#include <string>

#include "ddp_runtime/report/document/chart.h"

namespace ddp::report {

// `id` must be unique on the page: title and description use it.
std::string svg_of(const RankChart& chart, const std::string& id);
std::string svg_of(const BarChart& chart, const std::string& id);
std::string svg_of(const StripChart& chart, const std::string& id);

}  // namespace ddp::report
