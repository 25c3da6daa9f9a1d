// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/render/axis.h"

#include <cmath>

namespace ddp::report {
namespace {

// A value up to about 3 % above a power of two does not need the next power as a tick.
constexpr double kSlack = 0.04;

}  // namespace

Axis::Axis(double low, double high, double from, double to, bool logarithmic)
    : low_(logarithmic ? std::log2(low) : low),
      high_(logarithmic ? std::log2(high) : high),
      from_(from),
      to_(to),
      logarithmic_(logarithmic) {}

double Axis::operator()(double value) const {
  const double place = logarithmic_ ? std::log2(value) : value;
  if (high_ <= low_) return (from_ + to_) / 2;
  return from_ + (place - low_) / (high_ - low_) * (to_ - from_);
}

std::vector<double> linear_ticks(double high) {
  if (!(high > 0) || !std::isfinite(high)) return {0, 1};
  const double rough = high / 5;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (int i = 0; i <= 10; ++i) {
    ticks.push_back(i * step);
    if (i * step >= high * (1 - 1e-9)) break;
  }
  return ticks;
}

std::vector<double> binary_ticks(double low, double high) {
  const int first = static_cast<int>(std::floor(std::log2(low) + kSlack));
  const int last = static_cast<int>(std::ceil(std::log2(high) - kSlack));
  const int stride = (last - first) / 8 + 1;
  std::vector<double> ticks;
  for (int power = first; power < last + stride; power += stride) {
    ticks.push_back(std::exp2(power));
  }
  return ticks;
}

}  // namespace ddp::report
