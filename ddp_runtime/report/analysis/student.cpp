// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/student.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace ddp::report {
namespace {

// With 1 to 30 degrees of freedom.
using Percentiles = std::array<double, 30>;

constexpr Percentiles k95th = {6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860,
                               1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
                               1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711,
                               1.708, 1.706, 1.703, 1.701, 1.699, 1.697};
constexpr double kNormal95th = 1.645;

constexpr Percentiles k99th = {31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896,
                               2.821,  2.764, 2.718, 2.681, 2.650, 2.624, 2.602, 2.583,
                               2.567,  2.552, 2.539, 2.528, 2.518, 2.508, 2.500, 2.492,
                               2.485,  2.479, 2.473, 2.467, 2.462, 2.457};
constexpr double kNormal99th = 2.326;

// Between two entries, and between the last one and the normal distribution, a percentile is almost
// linear in 1 / degrees.
double percentile(const Percentiles& table, double normal, double degrees) {
  const double known = std::max(degrees, 1.0);
  const auto below = std::min(static_cast<std::size_t>(known), table.size());
  const double from = table.at(below - 1);
  const bool last = below == table.size();
  const double to = last ? normal : table.at(below);
  const double begin = 1 / static_cast<double>(below);
  const double end = last ? 0 : 1 / static_cast<double>(below + 1);
  return from + (to - from) * (begin - 1 / known) / (begin - end);
}

}  // namespace

double student_95th(double degrees) {
  return percentile(k95th, kNormal95th, degrees);
}

double student_99th(double degrees) {
  return percentile(k99th, kNormal99th, degrees);
}

}  // namespace ddp::report
