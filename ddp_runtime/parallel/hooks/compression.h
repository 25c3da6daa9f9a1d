// SPDX-License-Identifier: Apache-2.0
// Communication hooks that keep no state from earlier steps.
#pragma once

#include <string>
#include <string_view>

#include "ddp_runtime/parallel/comm_hook.h"

namespace ddp::hooks {

// Half of the bytes: gradients are rounded to 16 bits, summed in that type, and widened again. fp16
// has three digits and ends at 65504; bf16 has two digits and fp32's range. The ranks sum gradients
// that are already divided by the number of ranks. For fp16, which loses digits below 6e-5 and
// everything below 3e-8, they are divided only by about the square root of that: the range of one
// rank's contribution and that of the sum are then reduced by the same factor, and a sum overflows
// at 65504 / sqrt(ranks).
HookTask fp16(GradientBucket& bucket);
HookTask bf16(GradientBucket& bucket);

// Sends nothing, so that each rank trains by itself with its own share of the average: shows what a
// step would cost if communication were free. For measurements only, with check_parameters_every =
// 0.
HookTask none(GradientBucket& bucket);

// "fp16", "bf16", "powersgd" or "powersgd:RANK", "noop"; empty or "off": no hook. Throws UsageError
// for anything else.
CommHook by_name(std::string_view name);

}  // namespace ddp::hooks
