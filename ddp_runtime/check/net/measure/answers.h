// Whether what a task sent is an answer to what it was asked: of the right types, and possible. A
// task that sends anything else must cost the check this task and not the verdict.
#pragma once

#include <nlohmann/json.hpp>

namespace ddp::check {

// Everything that is read out of an answer to this order can be read, and is a number that can be
// measured. An error told in words is an answer, too.
bool is_answer_to(const nlohmann::json& command, const nlohmann::json& answer);

}  // namespace ddp::check
