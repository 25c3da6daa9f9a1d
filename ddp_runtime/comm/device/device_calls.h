// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime that communication needs, as a table that is filled at run
// time. HIP's functions have the same types, so a table for it would need other names only.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "ddp_runtime/comm/group/memory.h"

namespace ddp::comm {

using DeviceEvent = void*;  // cudaEvent_t

// Values of the runtime's enumerations, which are part of its binary interface.
namespace cuda {
inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kInsufficientDriver = 35;
inline constexpr int kNoDevice = 100;
inline constexpr int kNotReady = 600;
inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr unsigned kEventWithTiming = 0;
inline constexpr unsigned kEventWithoutTiming = 2;
inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr int kCopyDefault = 4;  // the direction follows from the addresses
}  // namespace cuda

// All functions return 0 or an error code, except for error_string.
struct DeviceCalls {
  const char* (*error_string)(int) = nullptr;
  int (*runtime_version)(int*) = nullptr;  // 13000 for 13.0
  int (*driver_version)(int*) = nullptr;   // the newest runtime that it supports; 0: no driver
  int (*take_last_error)() = nullptr;      // of this thread
  int (*device_count)(int*) = nullptr;
  int (*set_device)(int) = nullptr;  // of this thread
  int (*get_device)(int*) = nullptr;
  int (*synchronize)() = nullptr;  // waits for all streams of this thread's device
  int (*pci_bus_id)(char*, int, int) = nullptr;
  int (*exchange_capture_mode)(int*) = nullptr;  // of this thread
  int (*priority_range)(int*, int*) = nullptr;   // lowest, highest
  int (*stream_create)(DeviceStream*, unsigned, int) = nullptr;
  int (*stream_destroy)(DeviceStream) = nullptr;
  int (*stream_query)(DeviceStream) = nullptr;
  int (*stream_wait_event)(DeviceStream, DeviceEvent, unsigned) = nullptr;
  int (*event_create)(DeviceEvent*, unsigned) = nullptr;
  int (*event_destroy)(DeviceEvent) = nullptr;
  int (*event_record)(DeviceEvent, DeviceStream) = nullptr;
  int (*event_query)(DeviceEvent) = nullptr;
  int (*event_elapsed)(float*, DeviceEvent, DeviceEvent) = nullptr;  // milliseconds
  int (*copy)(void*, const void*, std::size_t, int, DeviceStream) = nullptr;
  int (*set_bytes)(void*, int, std::size_t, DeviceStream) = nullptr;
  int (*allocate)(void**, std::size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*allocate_host)(void**, std::size_t) = nullptr;  // page-locked
  int (*free_host)(void*) = nullptr;

  std::string file;  // the library that contains them, for messages
};

// See SharedLibrary for where the runtime is looked for. Throws UsageError.
DeviceCalls load_device_calls(const std::string& path = {});

// Throws UsageError with one sentence if the driver is missing or too old, or if this process sees
// no device with the number `device`.
void require_device(const DeviceCalls& calls, int device);

// Throws RuntimeError("the GPU cannot <what>: <reason>") if `code` is an error.
void check_device(const DeviceCalls& calls, int code, std::string_view what);

// A DeviceStream of this thread's device whose work comes before that of other streams. Throws
// RuntimeError.
std::shared_ptr<void> open_urgent_stream(const DeviceCalls& calls);

// Makes `device` this thread's current one until the end of the scope. Errors are ignored: the call
// that the scope protects reports them.
class DeviceScope {
 public:
  DeviceScope(const DeviceCalls& calls, int device) : calls_(calls) {
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
  const DeviceCalls& calls_;
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace ddp::comm
