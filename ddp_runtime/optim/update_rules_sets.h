// SPDX-License-Identifier: Apache-2.0
// The rules of each instruction set: arrays of kRoundings rules, in the order of `Rounding`.
#pragma once

#include "ddp_runtime/optim/update_rules.h"

namespace ddp::optim {

inline constexpr std::size_t kRoundings = 3;

const UpdateRules* baseline_rules();
#if defined(__x86_64__)
const UpdateRules* avx2_rules();
#endif

}  // namespace ddp::optim
