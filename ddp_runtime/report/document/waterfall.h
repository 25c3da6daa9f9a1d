// SPDX-License-Identifier: Apache-2.0
// The bars of a waterfall chart: how one total becomes another.
#pragma once

#include <string>
#include <vector>

#include "ddp_runtime/report/document/chart.h"

namespace ddp::report {

// A total, or a change of it.
struct WaterfallStep {
  std::string kind;  // selects the color, as that of a Segment
  std::string name;
  double value = 0;   // of a change: negative if the total becomes smaller
  std::string label;  // text after the bar
};

// A bar for each total, and between them one for each change, which begins where the previous one
// ends. Changes too small to be seen have no bar.
std::vector<Bar> waterfall(const WaterfallStep& from, const std::vector<WaterfallStep>& changes,
                           const WaterfallStep& to);

}  // namespace ddp::report
