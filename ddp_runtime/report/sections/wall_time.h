// SPDX-License-Identifier: Apache-2.0
// The time of a process outside of its steps, its outcome, and the part of the run that it trained.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/report/document/document.h"
#include "ddp_runtime/report/record/run_record.h"

namespace ddp::report {

// One row per run that has recorded its wall time; nullopt if none has.
std::optional<Section> wall_section(const std::vector<const RunRecord*>& runs);

// Cautions: the run did not finish, the report covers only a part of it, much time was spent
// outside of the steps.
std::vector<std::string> wall_cautions(const RunRecord& run);

// The processes of the run and how this one ended, if known.
std::vector<std::pair<std::string, std::string>> coverage_facts(const RunRecord& run);

// Whether 5 % of the steps take more than twice the median.
bool steps_vary(const RunRecord& run);

}  // namespace ddp::report
