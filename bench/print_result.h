// SPDX-License-Identifier: Apache-2.0
// Human-readable output of ddp-bench; scripts read the JSON.
#pragma once

#include <nlohmann/json.hpp>

namespace ddp::bench {

void print_step(const nlohmann::json& result);
void print_pipeline(const nlohmann::json& result);
void print_memory(const nlohmann::json& result);
void print_allreduce(const nlohmann::json& result);
void print_ckpt(const nlohmann::json& result);
void print_async(const nlohmann::json& result);
void print_timeline(const nlohmann::json& result);

}  // namespace ddp::bench
