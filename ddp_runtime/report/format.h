// Numbers as people read them.
#pragma once

#include <optional>
#include <string>

namespace ddp::report {

// Three significant digits, without an exponent where it can be avoided: 0.00123, 12.3, 12345.
std::string significant(double value);

// A fraction as per cent with one decimal: 61.3 %.
std::string percent(double fraction);

// Seconds as milliseconds, without the unit.
std::string milliseconds(double seconds);

// What stands for a figure that is not there.
inline constexpr const char* kAbsent = "–";

}  // namespace ddp::report
