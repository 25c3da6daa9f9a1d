// SPDX-License-Identifier: Apache-2.0
// Communication hooks that keep no state from earlier steps.
#pragma once

#include <string>
#include <string_view>

#include "ddp_runtime/parallel/hooks/comm_hook.h"

namespace ddp::hooks {

// These hooks send half as many bytes: they round gradients to 16 bits, sum them in that type, and
// convert the sum back. fp16 has three significant digits and a maximum of 65504; bf16 has two
// significant digits and the range of fp32. The ranks sum gradients that are already divided by the
// number of ranks. fp16 loses precision below 6e-5 and flushes values below 3e-8 to zero, so the
// fp16 hook divides the gradients by only about the square root of the number of ranks. This
// reduces the range of each rank's contribution and the range of the sum by the same factor, and a
// sum overflows at 65504 / sqrt(ranks).
HookTask fp16(GradientBucket& bucket);
HookTask bf16(GradientBucket& bucket);

// Sends as many bytes as bf16(), but sums in float32: each rank receives its part of the bucket
// from all ranks, adds it up, and sends the sum to all in bf16. So a gradient is rounded twice on
// any number of ranks, and small contributions are not lost beside large ones. bf16() rounds after
// every addition, so that its error grows with the number of ranks.
HookTask bf16_summed_in_fp32(GradientBucket& bucket);

// Sends nothing: each rank trains alone, with only its share of the average. Shows how long a step
// would take if communication were free. For measurements only; set check_parameters_every to 0.
HookTask none(GradientBucket& bucket);

// "fp16", "bf16", "bf16-fp32" (bf16_summed_in_fp32), "powersgd" or "powersgd:RANK", "noop"; empty
// or "off" means no hook. Throws UsageError for anything else.
CommHook by_name(std::string_view name);

}  // namespace ddp::hooks
