// Communication hooks that need no memory of earlier steps.
#pragma once

#include <string>
#include <string_view>

#include "ddp_runtime/parallel/comm_hook.h"

namespace ddp::hooks {

// Half of the bytes: gradients are rounded to 16 bits, added up in them, and widened again. fp16
// has three digits and ends at 65504, bf16 two and fp32's range. The division by the number of
// ranks comes before the rounding, so that a sum overflows only where the average would.
HookTask fp16(GradientBucket& bucket);
HookTask bf16(GradientBucket& bucket);

// Sends nothing, so that each rank trains by itself with its part of the average: what a step would
// cost if communication were free. For measuring only.
HookTask none(GradientBucket& bucket);

// "fp16", "bf16", "powersgd" or "powersgd:RANK", "noop"; empty or "off": no hook. Throws UsageError
// for anything else.
CommHook by_name(std::string_view name);

}  // namespace ddp::hooks
