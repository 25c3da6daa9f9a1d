// Environment variables as a value, so that what depends on them can be tested without changing
// the process's own.
#pragma once

#include <optional>
#include <string>

#include "spank_plugin/launch/environment.h"

namespace ddp::check {

// The value of a variable; nothing if it is unset.
using Environment = launch::EnvLookup;

Environment process_environment();

// A whole decimal number; nothing if the variable is unset or holds anything else.
std::optional<int> integer(const Environment& environment, const std::string& name);

}  // namespace ddp::check
