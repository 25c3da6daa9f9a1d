// SPDX-License-Identifier: Apache-2.0
// libtorch decides once per process whether it has CUDA: when it is first asked. Programs load its
// CUDA half while they start, after the start checks, so these must not ask.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "ddp_runtime/comm/start_check.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {
namespace {

// Stands for the class that the CUDA half registers when it is loaded.
struct LoadedHooks : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
};

[[noreturn]] void start_and_load_cuda() {
  comm::make_start_checks();
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> {
        return std::make_unique<LoadedHooks>();
      });
  std::exit(at::globalContext().hasCUDA() ? 0 : 1);
}

TEST(CudaFirstUse, FollowsTheStartChecks) {
  if (!torch_compat::kSupportsDevices) GTEST_SKIP() << "this PyTorch is too old for GPUs";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // runs this test alone in a new process
  EXPECT_EXIT(start_and_load_cuda(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ddp
