// SPDX-License-Identifier: Apache-2.0
// The content of a report before it is rendered, without its appearance.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ddp_runtime/report/document/chart.h"
#include "ddp_runtime/report/document/table.h"

namespace ddp::report {

using Chart = std::variant<RankChart, BarChart, StripChart>;

struct Section {
  std::string id;  // stable, for scripts and links
  std::string heading;
  std::vector<std::string> paragraphs;
  std::vector<Chart> charts;
  Table table;
};

// A figure shown as a tile at the top.
struct KeyFigure {
  std::string name;
  std::string value;
  std::string note;
};

struct Document {
  std::string kind;     // "run", "sweep", "compare"
  std::string program;  // the program that made the report
  std::string title;
  std::string verdict;                // the main result in one sentence
  std::string advice;                 // what to try next; may be empty
  std::vector<std::string> cautions;  // reasons to doubt the results
  std::vector<KeyFigure> figures;
  std::vector<std::pair<std::string, std::string>> facts;  // name and value
  std::vector<Section> sections;
  std::vector<std::pair<std::string, std::string>> glossary;
  nlohmann::json summary = nlohmann::json::object();  // the figures of the verdict, for scripts
};

}  // namespace ddp::report
