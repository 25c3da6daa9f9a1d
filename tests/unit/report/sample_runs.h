// SPDX-License-Identifier: Apache-2.0
// Made-up runs for the tests of the report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/report/document/document.h"
#include "ddp_runtime/report/record/run_record.h"

namespace ddp::report::test {

// A complete run.json: `world_size` ranks, a step of `parts` seconds (data, forward, backward,
// exposed_comm, optimizer, checkpoint, other), and batch / step samples per second.
nlohmann::json run_json(int world_size, double global_batch, const std::vector<double>& parts);

// Parts of a step of 1 s on one rank, and of 0.5 s on four ranks.
inline const std::vector<double> kOneRank{0, 0.25, 0.625, 0, 0.125, 0, 0};
inline const std::vector<double> kFourRanks{0, 0.0625, 0.15625, 0.125, 0.125, 0, 0.03125};

RunRecord run_of(const nlohmann::json& json, const std::string& source = "run");

// Returns an empty section if there is none.
Section section_of(const Document& document, const std::string& id);

}  // namespace ddp::report::test
