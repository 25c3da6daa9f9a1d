// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/gpu/cuda_runtime.h"

#include <fmt/format.h>

#include <array>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::cuda {
namespace {

constexpr std::array<const char*, 2> kRuntimeNames = {"libcudart.so.13", "libcudart.so.12"};

// "13.0" for 13000.
std::string release(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

Runtime load_runtime(const std::string& path) {
  return {gpu::SharedLibrary("the CUDA runtime", kRuntimeNames, path)};
}

void require_device(const Runtime& calls, int device) {
  int runtime = 0;
  int driver = 0;
  calls.runtime_version(&runtime);
  if (calls.driver_version(&driver) != kSuccess || driver == 0) {
    throw UsageError(
        "this machine has no NVIDIA driver; run on a node with GPUs, or use --device cpu");
  }
  int count = 0;
  const Code code = calls.device_count(&count);
  if (code == kInsufficientDriver) {
    throw UsageError(fmt::format(
        "the NVIDIA driver of this machine supports CUDA {}, but {} is CUDA {}; update "
        "the driver, use a PyTorch for CUDA {}, or use --device cpu",
        release(driver), calls.library.file_of("cudaMalloc"), release(runtime), release(driver)));
  }
  if (code == kNoDevice || (code == kSuccess && count == 0)) {
    throw UsageError(
        "this process sees no GPU; request one with --gpus-per-task=1, check CUDA_VISIBLE_DEVICES, "
        "or use --device cpu");
  }
  check_device(calls, code, "be found");
  if (device < 0 || device >= count) {
    throw UsageError(
        fmt::format("this process sees {}, but needs the one with number {}; request one GPU "
                    "per task with --gpus-per-task=1, or check CUDA_VISIBLE_DEVICES",
                    counted(count, "GPU"), device));
  }
}

void check_device(const Runtime& calls, Code code, std::string_view what) {
  if (code == kSuccess) return;
  throw RuntimeError(
      fmt::format("the GPU cannot {}: {} ({})", what, calls.error_string(code), code));
}

std::shared_ptr<void> open_urgent_stream(const Runtime& calls) {
  int lowest = 0;
  int highest = 0;
  check_device(calls, calls.priority_range(&lowest, &highest), "report its priorities");
  Stream stream = nullptr;
  check_device(calls, calls.stream_create(&stream, kNonBlockingStream, highest), "create a stream");
  return {stream, calls.stream_destroy};
}

}  // namespace ddp::cuda
