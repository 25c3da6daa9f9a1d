// Numbers as people read them.
#pragma once

#include <optional>
#include <string>

namespace ddp::report {

// Three significant digits, without an exponent where it can be avoided: 0.00123, 12.3, 12345.
std::string significant(double value);

// The same with a letter for thousands, millions, .. from 10000 on, for where there is little room:
// 17.6k, 394M.
std::string compact(double value);

// A fraction as per cent with one decimal: 61.3 %; beyond a million per cent with an exponent.
std::string percent(double fraction);

// Seconds as milliseconds, without the unit.
std::string milliseconds(double seconds);

// At most 80 characters of a name that somebody else chose; the rest becomes an ellipsis.
std::string shortened(const std::string& name);

// What stands for a figure that is not there.
inline constexpr const char* kAbsent = "–";

}  // namespace ddp::report
