// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/gpu/nccl.h"

#include <gtest/gtest.h>

namespace ddp::nccl {
namespace {

TEST(NcclRelease, KnowsBothSchemes) {
  EXPECT_EQ(release_of(22809), "2.28.9");
  EXPECT_EQ(release_of(2803), "2.8.3");
}

}  // namespace
}  // namespace ddp::nccl
