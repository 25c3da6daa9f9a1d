// SPDX-License-Identifier: Apache-2.0
// Rows shared by all formats of a report: JSON contains the raw values, the other formats contain
// formatted text. Only the renderers format.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace ddp::report {

// Empty, a number in the column's unit, or text.
using Cell = std::variant<std::monostate, double, std::string>;

template <class Optional>
Cell cell_of(const Optional& value) {
  return value ? Cell(static_cast<double>(*value)) : Cell();
}

enum class Show {
  text,
  count,         // integer
  significant,   // three significant digits
  percent,       // a fraction
  milliseconds,  // seconds
};

struct Column {
  std::string key;  // stable, for scripts
  std::string heading;
  Show show = Show::text;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // as many cells as there are columns
};

// The formatted text of a cell. Numbers in a text column are printed in full if they are integers,
// else with three digits.
std::string text_of(const Cell& cell, Show show);

}  // namespace ddp::report
