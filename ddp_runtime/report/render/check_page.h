// SPDX-License-Identifier: Apache-2.0
// The HTML page of a network check: the verdict, a heat map of all pairs of nodes for each
// transport, and the findings.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ddp::report {

// Renders JSON of schema slurm-ddp/check/1 or 2 into one self-contained HTML file. Throws
// nlohmann::json::exception for any other input. Above 128 nodes the map is omitted and the slowest
// pairs are listed.
std::string check_page(const nlohmann::json& report);

}  // namespace ddp::report
