// SPDX-License-Identifier: Apache-2.0
// Compares the numbers with those published in docs/evidence/checkpoint.md.

#include "tests/unit/hdf5_ckpt/fault_matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>

namespace ddp::ckpt::test {
namespace {

std::optional<std::size_t> documented(const std::string& fault) {
  std::ifstream page(SLURM_DDP_SOURCE_DIR "/docs/evidence/checkpoint.md");
  const std::string start = "| " + fault + " | ";
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(start)) continue;
    std::size_t points = 0;
    const auto [end, error] =
        std::from_chars(line.data() + start.size(), line.data() + line.size(), points);
    if (error == std::errc() && std::string_view(end).starts_with(" |")) return points;
  }
  return std::nullopt;
}

}  // namespace

void expect_in_fault_matrix(const std::string& fault, std::size_t points) {
  fmt::print("fault matrix: {}: {} points\n", fault, points);
  const auto promised = documented(fault);
  ASSERT_TRUE(promised) << "docs/evidence/checkpoint.md has no row for '" << fault << "'";
  EXPECT_GE(points, *promised) << "docs/evidence/checkpoint.md promises more points for '" << fault
                               << "'";
}

bool long_tests() {
  const char* const value = std::getenv("SLURM_DDP_LONG_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace ddp::ckpt::test
