// SPDX-License-Identifier: Apache-2.0
// The rules for CPUs with AVX-512.
#include "ddp_runtime/optim/update_loops.h"
#include "ddp_runtime/optim/update_rules_sets.h"

namespace ddp::optim {

const UpdateRules* avx512_rules() {
  static constexpr UpdateRules kRules[kRoundings] = {rules_for<Rounding::fused>("AVX-512"),
                                                     rules_for<Rounding::fused_add>("AVX-512"),
                                                     rules_for<Rounding::separate>("AVX-512")};
  return kRules;
}

}  // namespace ddp::optim
