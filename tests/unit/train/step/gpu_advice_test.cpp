// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/gpu_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"

namespace ddp::train {
namespace {

using testing::ThrowsMessage;

// As libtorch says it (c10/cuda/CUDACachingAllocator.cpp).
constexpr const char* kOutOfMemory =
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.11 GiB of "
    "which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in "
    "use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by "
    "PyTorch but unallocated.  See documentation for Memory Management  (https://pytorch.org/docs)";

TEST(GpuAdvice, KeepsTheNumbersAndNamesWhatNeedsLess) {
  const c10::OutOfMemoryError error({__func__, __FILE__, __LINE__}, kOutOfMemory);
  EXPECT_THAT([&] { throw_with_gpu_advice(error); },
              ThrowsMessage<RuntimeError>(
                  "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of "
                  "79.11 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process "
                  "has 77.90 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by "
                  "PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated. A smaller --batch "
                  "with a larger --accumulate needs less memory; so do --param-type bf16 with "
                  "--precision bf16, and --checkpoint-activations with gpt"));
  const c10::OutOfMemoryError empty({__func__, __FILE__, __LINE__}, "");
  EXPECT_THROW(throw_with_gpu_advice(empty), RuntimeError);
}

TEST(GpuAdvice, NamesAGpuWithoutCode) {
  const c10::Error error({__func__, __FILE__, __LINE__},
                         "CUDA error: no kernel image is available for execution on the device");
  EXPECT_THAT([&] { throw_with_gpu_advice(error); },
              ThrowsMessage<UsageError>(
                  "this GPU is too old or too new for the PyTorch of this program, which has no "
                  "code for it (no kernel image is available); install a PyTorch that supports the "
                  "GPU, or use --device cpu"));
}

TEST(GpuAdvice, LeavesOtherErrorsAlone) {
  const c10::Error error({__func__, __FILE__, __LINE__}, "shapes do not match");
  EXPECT_NO_THROW(throw_with_gpu_advice(error));
}

}  // namespace
}  // namespace ddp::train
