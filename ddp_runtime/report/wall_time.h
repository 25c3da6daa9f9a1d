// SPDX-License-Identifier: Apache-2.0
// What a process did outside of its steps, how it ended, and which part of the run it trained.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/report/document.h"
#include "ddp_runtime/report/run_record.h"

namespace ddp::report {

// One row per run that has recorded its wall time; nullopt if none has.
std::optional<Section> wall_section(const std::vector<const RunRecord*>& runs);

// Cautions: a run that did not finish, only a part of a run, much time outside of the steps.
std::vector<std::string> wall_cautions(const RunRecord& run);

// The processes of the run and how this one ended, if known.
std::vector<std::pair<std::string, std::string>> coverage_facts(const RunRecord& run);

// Whether single steps take more than twice as long as most.
bool steps_vary(const RunRecord& run);

}  // namespace ddp::report
