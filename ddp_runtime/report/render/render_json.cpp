// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ddp_runtime/report/render/render.h"

namespace ddp::report {
namespace {

using nlohmann::json;

json value_of(const Cell& cell) {
  if (const auto* words = std::get_if<std::string>(&cell)) return *words;
  const auto* number = std::get_if<double>(&cell);
  return number != nullptr && std::isfinite(*number) ? json(*number) : json();
}

const char* unit_of(Show show) {
  switch (show) {
    case Show::percent:
      return "fraction";
    case Show::milliseconds:
      return "seconds";
    case Show::text:
      return "text";
    case Show::count:
    case Show::significant:
      break;
  }
  return "number";
}

json table_of(const Table& table) {
  json columns = json::array();
  for (const auto& column : table.columns) {
    columns.push_back(
        {{"key", column.key}, {"heading", column.heading}, {"unit", unit_of(column.show)}});
  }
  json rows = json::array();
  for (const auto& cells : table.rows) {
    json row = json::object();
    for (std::size_t i = 0; i < cells.size(); ++i) row[table.columns[i].key] = value_of(cells[i]);
    rows.push_back(std::move(row));
  }
  return {{"columns", columns}, {"rows", rows}};
}

}  // namespace

json to_json(const Document& document) {
  json sections = json::array();
  for (const auto& section : document.sections) {
    sections.push_back(
        {{"id", section.id}, {"heading", section.heading}, {"table", table_of(section.table)}});
  }
  json facts = json::object();
  for (const auto& [name, value] : document.facts) facts[name] = value;
  return {{"schema", "slurm-ddp/report/1"}, {"program", document.program},
          {"kind", document.kind},          {"title", document.title},
          {"verdict", document.verdict},    {"advice", document.advice},
          {"cautions", document.cautions},  {"facts", facts},
          {"summary", document.summary},    {"sections", sections}};
}

}  // namespace ddp::report
