// SPDX-License-Identifier: Apache-2.0
// The part of the launch plan that ranks need to connect over TCP, from the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/secret/key.h"
#include "ddp_runtime/comm/transport/tcp/rendezvous.h"

namespace ddp::comm {

// The plan in MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE. `step_key`: the secret of the step's
// processes; without one, any program that reaches the port could join. nullopt if a variable is
// missing or malformed, or belongs to another step than this task; `why`, if not null, then gets
// one sentence with the reason.
using VariableOf = std::function<const char*(const char* name)>;
std::optional<TcpPlan> tcp_plan(const VariableOf& variable, const std::optional<Key>& step_key,
                                std::string* why = nullptr);

}  // namespace ddp::comm
