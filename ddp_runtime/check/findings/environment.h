// SPDX-License-Identifier: Apache-2.0
// Environment variables passed as a parameter, so that tests do not change the environment of the
// process.
#pragma once

#include <optional>
#include <string>

#include "spank_plugin/launch/step/environment.h"

namespace ddp::check {

// The value of a variable, or nullopt if it is unset.
using Environment = launch::EnvLookup;

Environment process_environment();

// The value as a decimal integer, or nullopt if the variable is unset or holds anything else.
std::optional<int> integer(const Environment& environment, const std::string& name);

}  // namespace ddp::check
