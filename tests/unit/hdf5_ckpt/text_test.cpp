// SPDX-License-Identifier: Apache-2.0
// The display of progress and long names by ddp-ckpt.

#include "ddp_runtime/tools/ckpt/text.h"

#include <gtest/gtest.h>

namespace ddp::ckpt::tool {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;

TEST(ProgressText, ShowsPercentageRateAndTimeLeft) {
  EXPECT_EQ(progress_text("x", kGiB, 4 * kGiB, 2),
            "x: 25 %, 1.0 GiB of 4.0 GiB, 512.0 MiB/s, 6 s left");
  EXPECT_EQ(progress_text("x", kGiB, 4 * kGiB, 60),
            "x: 25 %, 1.0 GiB of 4.0 GiB, 17.1 MiB/s, 3 min left");
  EXPECT_EQ(progress_text("x", kGiB, 101 * kGiB, 60),
            "x: 0 %, 1.0 GiB of 101.0 GiB, 17.1 MiB/s, 1 h 40 min left");
}

TEST(ProgressText, ShowsNoRateTooEarly) {
  EXPECT_EQ(progress_text("x", 1, 1000, 0.1), "x: 0 %, 1 B of 1000 B");
  EXPECT_EQ(progress_text("x", 0, 1000, 100), "x: 0 %, 0 B of 1000 B");
  EXPECT_EQ(progress_text("x", 999, 1000, 0), "x: 99 %, 999 B of 1000 B");
  EXPECT_EQ(progress_text("x", 0, 0, 0), "x: 100 %, 0 B of 0 B");
}

TEST(TableText, OneLongNameDoesNotWidenAllRows) {
  const std::string name(1024, 'n');
  EXPECT_EQ(table_text({{"a", "1"}, {"abc", "2"}}), "a    1\nabc  2\n");
  const std::string text = table_text({{name, "1"}, {"a", "2"}});
  EXPECT_EQ(text, name + "  1\na" + std::string(61, ' ') + "2\n");
}

}  // namespace
}  // namespace ddp::ckpt::tool
