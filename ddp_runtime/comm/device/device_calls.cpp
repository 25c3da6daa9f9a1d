// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/device_calls.h"

#include <fmt/format.h>

#include <array>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/comm/device/shared_library.h"

namespace ddp::comm {
namespace {

constexpr std::array<const char*, 2> kRuntimeNames = {"libcudart.so.13", "libcudart.so.12"};

// "13.0" for 13000.
std::string release(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

DeviceCalls load_device_calls(const std::string& path) {
  const SharedLibrary library("the CUDA runtime", kRuntimeNames, path);
  DeviceCalls calls;
  library.require(calls.error_string, "cudaGetErrorString");
  library.require(calls.runtime_version, "cudaRuntimeGetVersion");
  library.require(calls.driver_version, "cudaDriverGetVersion");
  library.require(calls.take_last_error, "cudaGetLastError");
  library.require(calls.device_count, "cudaGetDeviceCount");
  library.require(calls.set_device, "cudaSetDevice");
  library.require(calls.get_device, "cudaGetDevice");
  library.require(calls.pci_bus_id, "cudaDeviceGetPCIBusId");
  library.require(calls.exchange_capture_mode, "cudaThreadExchangeStreamCaptureMode");
  library.require(calls.priority_range, "cudaDeviceGetStreamPriorityRange");
  library.require(calls.stream_create, "cudaStreamCreateWithPriority");
  library.require(calls.stream_destroy, "cudaStreamDestroy");
  library.require(calls.stream_query, "cudaStreamQuery");
  library.require(calls.synchronize, "cudaDeviceSynchronize");
  library.require(calls.stream_wait_event, "cudaStreamWaitEvent");
  library.require(calls.event_create, "cudaEventCreateWithFlags");
  library.require(calls.event_destroy, "cudaEventDestroy");
  library.require(calls.event_record, "cudaEventRecord");
  library.require(calls.event_query, "cudaEventQuery");
  library.require(calls.event_elapsed, "cudaEventElapsedTime");
  library.require(calls.copy, "cudaMemcpyAsync");
  library.require(calls.set_bytes, "cudaMemsetAsync");
  library.require(calls.allocate, "cudaMalloc");
  library.require(calls.free, "cudaFree");
  library.require(calls.allocate_host, "cudaMallocHost");
  library.require(calls.free_host, "cudaFreeHost");
  calls.file = library.file_of("cudaMalloc");
  return calls;
}

void require_device(const DeviceCalls& calls, int device) {
  int runtime = 0;
  int driver = 0;
  calls.runtime_version(&runtime);
  if (calls.driver_version(&driver) != cuda::kSuccess || driver == 0) {
    throw UsageError(
        "this machine has no NVIDIA driver; run on a node with GPUs, or use --device cpu");
  }
  int count = 0;
  const int code = calls.device_count(&count);
  if (code == cuda::kInsufficientDriver) {
    throw UsageError(
        fmt::format("the NVIDIA driver of this machine supports CUDA {}, but {} is CUDA {}; update "
                    "the driver, use a PyTorch for CUDA {}, or use --device cpu",
                    release(driver), calls.file, release(runtime), release(driver)));
  }
  if (code == cuda::kNoDevice || (code == cuda::kSuccess && count == 0)) {
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

void check_device(const DeviceCalls& calls, int code, std::string_view what) {
  if (code == cuda::kSuccess) return;
  throw RuntimeError(
      fmt::format("the GPU cannot {}: {} ({})", what, calls.error_string(code), code));
}

std::shared_ptr<void> open_urgent_stream(const DeviceCalls& calls) {
  int lowest = 0;
  int highest = 0;
  check_device(calls, calls.priority_range(&lowest, &highest), "report its priorities");
  DeviceStream stream = nullptr;
  check_device(calls, calls.stream_create(&stream, cuda::kNonBlockingStream, highest),
               "create a stream");
  return {stream, calls.stream_destroy};
}

}  // namespace ddp::comm
