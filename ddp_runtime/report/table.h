// Rows that are the same for every form of a report: JSON gets their values, people get them
// formatted. Nothing but the renderers formats.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace ddp::report {

// Nothing, a number in the column's unit, or words.
using Cell = std::variant<std::monostate, double, std::string>;

template <class Optional>
Cell cell_of(const Optional& value) {
  return value ? Cell(static_cast<double>(*value)) : Cell();
}

enum class Show {
  text,
  count,         // whole
  significant,   // three digits
  percent,       // a fraction
  milliseconds,  // seconds
};

struct Column {
  std::string key;  // stable, for machines
  std::string heading;
  Show show = Show::text;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // as many cells as columns
};

// What people see in a cell. Numbers in a text column are shown whole if they are, else with three
// digits.
std::string text_of(const Cell& cell, Show show);

}  // namespace ddp::report
