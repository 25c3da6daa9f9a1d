// SPDX-License-Identifier: Apache-2.0
// The measured times of a sweep in a format that Extra-P reads, for a second opinion on how they
// grow (https://github.com/extra-p/extrap, its JSON Lines format).
#pragma once

#include <string>

#include "ddp_runtime/report/analysis/scaling.h"

namespace ddp::report {

// One line for each run and phase:
// {"params":{"ranks":4},"callpath":"step->data","metric":"seconds", "value":0.1}; the callpath of
// the whole is "step". Exposed communication includes the waiting, which is below it:
// "step->exposed_comm->waiting". A time that a run does not know is left out of all. Throws a
// RuntimeError if no step time is left.
std::string to_extrap(const Scaling& scaling);

}  // namespace ddp::report
