// The page of a network check: the verdict, every pair of nodes as a heat map for each way of
// measuring, and what was found.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ddp::report {

// One HTML file that needs nothing else, from JSON of schema slurm-ddp/check/1 or 2. Throws
// nlohmann::json::exception for anything else. Above 128 nodes the map is left out and the
// slowest pairs are listed.
std::string check_page(const nlohmann::json& report);

}  // namespace ddp::report
