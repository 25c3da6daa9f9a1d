// SPDX-License-Identifier: Apache-2.0
// The rules for any CPU of this architecture.
#include "ddp_runtime/optim/update_loops.h"
#include "ddp_runtime/optim/update_rules_sets.h"

namespace ddp::optim {

const UpdateRules* baseline_rules() {
  static constexpr UpdateRules kRules[kRoundings] = {rules_for<Rounding::fused>("baseline"),
                                                     rules_for<Rounding::fused_add>("baseline"),
                                                     rules_for<Rounding::separate>("baseline")};
  return kRules;
}

}  // namespace ddp::optim
