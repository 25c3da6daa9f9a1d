// SPDX-License-Identifier: Apache-2.0
// How guards tell each other that the step ends. Clocks of nodes differ, so they tell how long it
// still takes.
#pragma once

#include <optional>

#include "base/channel/wire.h"
#include "spank_plugin/guard/step_end.h"

namespace ddp::guard {

Message to_message(const StepEnd& end);
// Returns nullopt for another message.
std::optional<StepEnd> parse_end(const Message& message);

}  // namespace ddp::guard
