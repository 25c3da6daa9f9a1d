// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA driver that load and launch kernels, as a table that is filled at run
// time, so that neither the build nor a machine without GPUs needs them. See comm::DeviceCalls for
// those of the CUDA runtime.
#pragma once

#include <string>
#include <string_view>

#include "ddp_runtime/comm/memory.h"

namespace ddp::kernels {

// All functions return 0 or an error code. The types of handles are the driver's CUlibrary,
// CUkernel and CUfunction.
struct KernelCalls {
  int (*init)(unsigned) = nullptr;
  int (*error_string)(int, const char**) = nullptr;
  int (*current_device)(int*) = nullptr;
  int (*device_attribute)(int*, int, int) = nullptr;
  int (*library_load)(void**, const void*, int*, void**, unsigned, int*, void**,
                      unsigned) = nullptr;
  int (*library_unload)(void*) = nullptr;
  int (*library_kernel)(void**, void*, const char*) = nullptr;
  int (*kernel_function)(void**, void*) = nullptr;  // of the current device; loads it
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                comm::DeviceStream, void**, void**) = nullptr;
};

// The library is the file `path`, or libcuda.so.1. Throws UsageError if there is none, or one of
// before CUDA 12.
KernelCalls load_kernel_calls(const std::string& path = {});

// Throws RuntimeError("the GPU cannot <what>: <reason>") if `code` is an error of the driver.
void check_driver(const KernelCalls& calls, int code, std::string_view what);

}  // namespace ddp::kernels
