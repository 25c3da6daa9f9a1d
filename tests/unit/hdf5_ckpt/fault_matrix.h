#pragma once
// The crash matrix: each test of a fault prints how many points it has tried, and what it tried is
// at least what docs/checkpoint.md says.

#include <cstddef>
#include <string>

namespace ddp::ckpt::test {

// Prints "fault matrix: <fault>: <points> points"; fails the test if the table in
// docs/checkpoint.md has no row "| <fault> | <number> |" or one with a larger number.
void expect_in_fault_matrix(const std::string& fault, std::size_t points);

// Whether the environment asks for the long versions (SLURM_DDP_LONG_TESTS=1).
bool long_tests();

}  // namespace ddp::ckpt::test
