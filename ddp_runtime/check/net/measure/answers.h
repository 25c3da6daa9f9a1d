// SPDX-License-Identifier: Apache-2.0
// Checks that a task's answer fits the command: the right types, and possible values. An invalid
// answer must cost the check only this task, not the verdict.
#pragma once

#include <nlohmann/json.hpp>

namespace ddp::check {

// Whether the answer has every field that the check reads, each with a plausible number. An answer
// with an error message is valid, too.
bool is_answer_to(const nlohmann::json& command, const nlohmann::json& answer);

}  // namespace ddp::check
