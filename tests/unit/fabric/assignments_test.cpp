// SPDX-License-Identifier: Apache-2.0
// nccl.conf and similar files, well-formed and malformed.
#include "spank_plugin/fabric/files/assignments.h"

#include <gtest/gtest.h>

namespace ddp::fabric {
namespace {

TEST(Assignments, HandlesCommentsSpacesAndEqualSigns) {
  const auto found = parse_assignments(
      "# site\n"
      "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\n"
      "  NCCL_DEBUG = WARN   # quiet\r\n"
      "\n"
      "NCCL_EMPTY=\n"
      "NCCL_DEBUG=INFO",
      "/etc/nccl.conf");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0], (Assignment{"NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1", "/etc/nccl.conf"}));
  EXPECT_EQ(found[1].value, "WARN");
  EXPECT_EQ(found[2].value, "");
  EXPECT_EQ(find_assignment(found, "NCCL_DEBUG")->value, "WARN");
  EXPECT_EQ(find_assignment(found, "NCCL_NET"), nullptr);
}

TEST(Assignments, OtherLinesAreSkipped) {
  for (const auto* const text : {"", "NCCL_DEBUG", "=x", "1A=x", "A B=x", "A=\x01", "A=\xc3\xa9"}) {
    EXPECT_TRUE(parse_assignments(text, "f").empty()) << text;
  }
}

TEST(Assignments, LinesAreBounded) {
  EXPECT_TRUE(parse_assignments("A=" + std::string(5000, 'x'), "f").empty());
  std::string many;
  for (int i = 0; i < 3000; ++i) many += "A=1\n";
  EXPECT_EQ(parse_assignments(many, "f").size(), 1024U);
}

}  // namespace
}  // namespace ddp::fabric
