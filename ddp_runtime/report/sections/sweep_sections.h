// SPDX-License-Identifier: Apache-2.0
// The sections of a sweep's report: each is a table with charts of the same figures.
#pragma once

#include "ddp_runtime/report/analysis/scaling.h"
#include "ddp_runtime/report/document/document.h"

namespace ddp::report {

Section speed_section(const Scaling& scaling);
Section throughput_section(const Scaling& scaling);
Section step_section(const Scaling& scaling);
Section loss_section(const Scaling& scaling);
// Expected figures for more ranks, or why there are none.
Section extrapolation_section(const Scaling& scaling);
Section overlap_section(const Scaling& scaling);
Section runs_section(const Scaling& scaling);

}  // namespace ddp::report
