// SPDX-License-Identifier: Apache-2.0
// The variables that a task of a planned step passes to what it starts: salloc, sbatch and srun run
// inside a task inherit its rank.
#pragma once

namespace ddp::spank {

// Removes from the environment of this process all that the plan of the enclosing step set, ranks
// included. A variable that has another value than the plan's is the user's, and stays. Does
// nothing outside a task of a planned step.
void forget_enclosing_plan();

}  // namespace ddp::spank
