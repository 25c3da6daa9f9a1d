// SPDX-License-Identifier: Apache-2.0
// The rules for CPUs with AVX2 and FMA.
#include "ddp_runtime/optim/update_loops.h"
#include "ddp_runtime/optim/update_rules_sets.h"

namespace ddp::optim {

const UpdateRules* avx2_rules() {
  static constexpr UpdateRules kRules[kRoundings] = {rules_for<Rounding::fused>("AVX2"),
                                                     rules_for<Rounding::fused_add>("AVX2"),
                                                     rules_for<Rounding::separate>("AVX2")};
  return kRules;
}

}  // namespace ddp::optim
