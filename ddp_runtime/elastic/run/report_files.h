// SPDX-License-Identifier: Apache-2.0
// What ddp-run reads and writes in the directory of a report. Other users may be able to write
// there, so sizes are bounded, and links are not followed.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ddp_runtime/elastic/accounting/run_account.h"

namespace ddp::elastic {

// The events of earlier jobs; of a very long file, the end. Nothing if there is no such file.
void read_history(const std::filesystem::path& events_file, RunAccount& account);

// Replaces the file. Throws RuntimeError.
void write_resilience(const std::filesystem::path& file, const nlohmann::json& resilience);

// Sets the section `resilience` of a run.json. Does nothing if there is none. Throws RuntimeError.
// Not while a process of the program is left, which might write it, too.
void add_resilience(const std::filesystem::path& run_json, const nlohmann::json& resilience);

}  // namespace ddp::elastic
