// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime that communication needs, as a table that is filled at run
// time. HIP's functions have the same types, so a table for it would need other names only.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "ddp_runtime/gpu/cuda_types.h"
#include "ddp_runtime/gpu/shared_library.h"

namespace ddp::cuda {

// All functions return 0 or an error code, except for error_string.
struct Runtime {
  gpu::SharedLibrary library = {};  // first: the functions below are looked up in it
  const char* (*error_string)(Code) = library["cudaGetErrorString"];
  Code (*runtime_version)(int*) = library["cudaRuntimeGetVersion"];  // 13000 for 13.0
  // The newest runtime that it supports; 0: no driver.
  Code (*driver_version)(int*) = library["cudaDriverGetVersion"];
  Code (*take_last_error)() = library["cudaGetLastError"];  // of this thread
  Code (*device_count)(int*) = library["cudaGetDeviceCount"];
  Code (*set_device)(int) = library["cudaSetDevice"];  // of this thread
  Code (*get_device)(int*) = library["cudaGetDevice"];
  Code (*synchronize)() = library["cudaDeviceSynchronize"];  // all streams of this thread's device
  Code (*pci_bus_id)(char*, int, int) = library["cudaDeviceGetPCIBusId"];
  // Of this thread.
  Code (*exchange_capture_mode)(int*) = library["cudaThreadExchangeStreamCaptureMode"];
  // Lowest, highest.
  Code (*priority_range)(int*, int*) = library["cudaDeviceGetStreamPriorityRange"];
  Code (*stream_create)(Stream*, unsigned, int) = library["cudaStreamCreateWithPriority"];
  Code (*stream_destroy)(Stream) = library["cudaStreamDestroy"];
  Code (*stream_query)(Stream) = library["cudaStreamQuery"];
  Code (*stream_wait_event)(Stream, Event, unsigned) = library["cudaStreamWaitEvent"];
  Code (*event_create)(Event*, unsigned) = library["cudaEventCreateWithFlags"];
  Code (*event_destroy)(Event) = library["cudaEventDestroy"];
  Code (*event_record)(Event, Stream) = library["cudaEventRecord"];
  Code (*event_query)(Event) = library["cudaEventQuery"];
  Code (*event_elapsed)(float*, Event, Event) = library["cudaEventElapsedTime"];  // milliseconds
  Code (*copy)(void*, const void*, std::size_t, int, Stream) = library["cudaMemcpyAsync"];
  Code (*set_bytes)(void*, int, std::size_t, Stream) = library["cudaMemsetAsync"];
  Code (*allocate)(void**, std::size_t) = library["cudaMalloc"];
  Code (*free)(void*) = library["cudaFree"];
  Code (*allocate_host)(void**, std::size_t) = library["cudaMallocHost"];  // page-locked
  Code (*free_host)(void*) = library["cudaFreeHost"];
};

// See SharedLibrary for where the runtime is looked for. Throws UsageError.
Runtime load_runtime(const std::string& path = {});

// Throws UsageError with one sentence if the driver is missing or too old, or if this process sees
// no device with the number `device`.
void require_device(const Runtime& calls, int device);

// Throws RuntimeError("the GPU cannot <what>: <reason>") if `code` is an error.
void check_device(const Runtime& calls, Code code, std::string_view what);

// A Stream of this thread's device whose work comes before that of other streams. Throws
// RuntimeError.
std::shared_ptr<void> open_urgent_stream(const Runtime& calls);

// Makes `device` this thread's current one until the end of the scope. Errors are ignored: the call
// that the scope protects reports them.
class DeviceScope {
 public:
  DeviceScope(const Runtime& calls, int device) : calls_(calls) {
    calls_.get_device(&before_);
    if (before_ != device) calls_.set_device(device);
    changed_ = before_ != device;
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope() {
    if (changed_) calls_.set_device(before_);
  }

 private:
  const Runtime& calls_;
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace ddp::cuda
