// SPDX-License-Identifier: Apache-2.0
// Percentiles of Student's t distribution, for intervals around means of few runs.
#pragma once

namespace ddp::report {

// `degrees`: of freedom, at least 1, not necessarily a whole number. Right to 1 %, and to 0.1 % for
// whole numbers. An interval of 90 % ends at the 95th percentile on each side, one of 98 % at the
// 99th.
double student_95th(double degrees);
double student_99th(double degrees);

}  // namespace ddp::report
