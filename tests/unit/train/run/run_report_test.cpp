// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/run_report.h"

#include <gtest/gtest.h>

#include "tests/unit/test_device.h"

namespace ddp::train {
namespace {

TEST(ParametersCrc32c, CoversFloat32BytesInNameOrder) {
  // crc32c of the 8 bytes 0000803f00000040 (1.0f, 2.0f): a bitwise implementation also gives
  // 0x28c0c9b1.
  const std::vector<NamedTensor> parameters{{"b", test::on_test_device(torch::tensor({2.0F}))},
                                            {"a", test::on_test_device(torch::tensor({1.0}))}};
  EXPECT_EQ(parameters_crc32c(parameters), 0x28c0c9b1U);
}

}  // namespace
}  // namespace ddp::train
