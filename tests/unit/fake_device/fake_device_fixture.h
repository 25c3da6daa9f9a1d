// SPDX-License-Identifier: Apache-2.0
// For tests on the fake device.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/fake_device/fake_device.h"

namespace ddp::fake_device {

// Each test has fresh devices, and must neither misuse them nor leave anything behind, unless it
// says so.
class FakeDeviceTest : public testing::Test {
 protected:
  void SetUp() override { reset(); }
  void TearDown() override {
    if (!problems_expected_) {
      EXPECT_EQ(fake::problems(), std::vector<std::string>());
    }
    release();
    EXPECT_EQ(fake::leaks(), "");
  }
  // The problems that the fake found, which this test provokes.
  std::vector<std::string> expected_problems() {
    problems_expected_ = true;
    return fake::problems();
  }

 private:
  bool problems_expected_ = false;
};

// Moves the parameters and buffers of a module, which nn::Module::to() refuses for devices of the
// kind PrivateUse1 ("incompatible tensor type"). The tensors remain the same objects. Must be
// called before the first forward.
inline void move_to(torch::nn::Module& module, const c10::Device& device) {
  const auto move = [&](const torch::Tensor& tensor) {
    const auto moved = tensor.detach().to(device);
    tensor.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
  };
  for (const auto& parameter : module.parameters()) move(parameter);
  for (const auto& buffer : module.buffers()) move(buffer);
}

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const auto x = a.detach().cpu().contiguous();
  const auto y = b.detach().cpu().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

}  // namespace ddp::fake_device
