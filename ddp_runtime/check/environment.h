// Environment variables as a value, so that what depends on them can be tested without changing
// the process's own.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp::check {

// The value of a variable; nothing if it is unset.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

Environment process_environment();

// A whole decimal number; nothing if the variable is unset or holds anything else.
std::optional<int> integer(const Environment& environment, const std::string& name);

}  // namespace ddp::check
