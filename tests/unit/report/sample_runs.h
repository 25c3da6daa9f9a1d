// SPDX-License-Identifier: Apache-2.0
// Made-up runs for the tests of the report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/report/run_record.h"

namespace ddp::report::test {

// A complete run.json: `world_size` ranks, a step of `parts` seconds (data, forward, backward,
// exposed_comm, optimizer, checkpoint, other), and batch / step samples per second.
nlohmann::json run_json(int world_size, double global_batch, const std::vector<double>& parts);

RunRecord run_of(const nlohmann::json& json, const std::string& source = "run");

}  // namespace ddp::report::test
