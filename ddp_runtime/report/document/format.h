// SPDX-License-Identifier: Apache-2.0
// Numbers and words formatted for people.
#pragma once

#include <optional>
#include <string>

namespace ddp::report {

// Three significant digits, without an exponent where possible: 0.00123, 12.3, 12345.
std::string significant(double value);

// As significant(), but numbers from 10000 on have a letter for thousands, millions, .., for tight
// spaces: 17.6k, 394M.
std::string compact(double value);

// A fraction as a percentage with one decimal: 61.3 %; above a million percent with an exponent.
std::string percent(double fraction);

// The same with a sign: +61.3 %, -0.5 %; never "-0.0 %".
std::string signed_percent(double fraction);

// Seconds as milliseconds, without the unit.
std::string milliseconds(double seconds);

// At most 80 characters of a name from outside; the rest becomes an ellipsis.
std::string shortened(const std::string& name);

// With an ASCII capital at its beginning.
std::string capitalized(std::string text);

// Placeholder for a missing figure.
inline constexpr const char* kAbsent = "–";

}  // namespace ddp::report
