// What the documents share: a step's time as a bar and as cells, what to try against a loss.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddp_runtime/report/chart.h"
#include "ddp_runtime/report/run_record.h"
#include "ddp_runtime/report/table.h"

namespace ddp::report {

// Segments for the phases that took time, with their share of the step as labels, and what no phase
// accounts for.
Bar step_bar(std::string name, const StepSeconds& step);

// Mean, the phases, and unaccounted: columns and the cells of one row.
std::vector<Column> step_columns();
std::vector<Cell> step_cells(const StepSeconds& step);

// What usually helps against time lost in a phase ("exposed_comm").
std::string_view advice_for(std::string_view kind);

// Words and what they mean, for the end of a report.
std::vector<std::pair<std::string, std::string>> step_glossary();

// Whether the parts of the step do not sum to it.
bool parts_do_not_sum(const RunRecord& run);

}  // namespace ddp::report
