// SPDX-License-Identifier: Apache-2.0
// The section `resilience` of run.json: what failures, restarts and checkpoints have cost.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ddp_runtime/elastic/accounting/account.h"

namespace ddp::elastic {

inline constexpr const char* kResilienceSchema = "slurm-ddp/resilience/1";

// The part of the time without the queue in which the program made steps that count; nullopt for a
// program that has told no steps.
std::optional<double> ettr_of(const Account& account);

// `account` is closed().
nlohmann::json resilience_of(const Account& account);

// One sentence for people; empty for a program that has made no steps, as far as is known.
std::string resilience_sentence(const Account& account);

}  // namespace ddp::elastic
