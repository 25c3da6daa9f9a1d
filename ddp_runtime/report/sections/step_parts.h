// SPDX-License-Identifier: Apache-2.0
// Parts that the documents share: a step's time as a bar and as table cells, and advice against
// losses.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddp_runtime/report/document/chart.h"
#include "ddp_runtime/report/document/table.h"
#include "ddp_runtime/report/record/run_record.h"

namespace ddp::report {

// Segments for the phases that took time, labeled with their share of the step, and for the time
// that no phase accounts for.
Bar step_bar(std::string name, const StepSeconds& step);

// Mean, phases and unaccounted time: the columns, and the cells of one row.
std::vector<Column> step_columns();
std::vector<Cell> step_cells(const StepSeconds& step);

// Advice against time lost in a phase ("exposed_comm").
std::string_view advice_for(std::string_view kind);

// Terms and their meaning, for the end of a report.
std::vector<std::pair<std::string, std::string>> step_glossary();

// Whether the parts of the step do not sum to the step.
bool parts_do_not_sum(const RunRecord& run);

}  // namespace ddp::report
