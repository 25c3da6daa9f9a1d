// SPDX-License-Identifier: Apache-2.0
// Finds the update rules that give the bits of the libtorch in this process, by comparing steps.
#pragma once

#include <cstdint>
#include <span>

#include "ddp_runtime/optim/update_rules.h"

namespace ddp::optim {

enum class Rule : std::uint8_t { sgd, adam, adamw };

// Whether the rules give the same bits as torch::optim's step, for some thousands of values,
// several steps and hyperparameters. Draws no random numbers and does not depend on this thread's
// modes.
bool equals_libtorch(Rule rule, const UpdateRules& rules);

// The rules for Adam and AdamW to choose from: with the roots of the instruction set, then with
// libtorch's. The span lives as long as the process.
std::span<const UpdateRules> candidates();

// Returns the first of the candidates for which equals_libtorch() holds, or null.
const UpdateRules* first_equal(Rule rule, std::span<const UpdateRules> candidates);

// The rules with which the optimizers of this process make a step in one pass; null if none gives
// libtorch's bits. The first call for a rule makes the comparison, which takes milliseconds.
const UpdateRules* rules_in_use(Rule rule);

// Whether parameters on a CPU that fit are updated in one pass; otherwise libtorch's own step
// updates them. The values are the same.
inline bool one_pass_in_use(Rule rule) {
  return rules_in_use(rule) != nullptr;
}

}  // namespace ddp::optim
