// SPDX-License-Identifier: Apache-2.0
// Whether a task's answer fits the command: the right types, and possible values. A task that sends
// anything else must cost the check this task, not the verdict.
#pragma once

#include <nlohmann/json.hpp>

namespace ddp::check {

// True if every field that is read from an answer to this command exists and holds a number that
// can be measured. An answer that holds an error message is valid, too.
bool is_answer_to(const nlohmann::json& command, const nlohmann::json& answer);

}  // namespace ddp::check
