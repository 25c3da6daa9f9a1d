// SPDX-License-Identifier: Apache-2.0
// Turns runs into documents: the report of one run, of a sweep, and of two runs side by side.
#pragma once

#include <string>
#include <vector>

#include "ddp_runtime/report/analysis/comparison.h"
#include "ddp_runtime/report/analysis/scaling.h"
#include "ddp_runtime/report/document/document.h"
#include "ddp_runtime/report/record/run_record.h"

namespace ddp::report {

// `program`: name and version of the program that makes the report.

Document run_document(const RunRecord& run, const std::string& program);

Document sweep_document(const Scaling& scaling, const std::string& program);

// Two groups of runs, of which the tables show the median ones; `metric` is judged.
Document compare_document(const ScalingPoint& a, const ScalingPoint& b, Metric metric,
                          const std::string& program);
// Two runs.
Document compare_document(const RunRecord& a, const RunRecord& b, const std::string& program);

}  // namespace ddp::report
