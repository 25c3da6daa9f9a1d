// SPDX-License-Identifier: Apache-2.0
// The fault matrix. Each test of a fault prints the number of points that it has tried, which must
// be at least the number in docs/evidence/checkpoint.md.
#pragma once

#include <cstddef>
#include <string>

namespace ddp::ckpt::test {

// Prints "fault matrix: <fault>: <points> points"; fails the test if the table in
// docs/evidence/checkpoint.md has no row "| <fault> | <number> |" or one with a larger number.
void expect_in_fault_matrix(const std::string& fault, std::size_t points);

// True if the environment requests the long versions of the tests (SLURM_DDP_LONG_TESTS=1).
bool long_tests();

}  // namespace ddp::ckpt::test
