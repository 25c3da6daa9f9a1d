// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/kernels/kernel_calls.h"

#include <fmt/format.h>

#include <array>

#include "base/errors.h"
#include "ddp_runtime/comm/device/shared_library.h"

namespace ddp::kernels {

KernelCalls load_kernel_calls(const std::string& path) {
  constexpr std::array<const char*, 1> kNames = {"libcuda.so.1"};
  const comm::SharedLibrary library("the CUDA driver", kNames, path);
  KernelCalls calls;
  library.require(calls.init, "cuInit");
  library.require(calls.error_string, "cuGetErrorString");
  library.require(calls.current_device, "cuCtxGetDevice");
  library.require(calls.device_attribute, "cuDeviceGetAttribute");
  library.require(calls.library_load, "cuLibraryLoadData");
  library.require(calls.library_unload, "cuLibraryUnload");
  library.require(calls.library_kernel, "cuLibraryGetKernel");
  library.require(calls.kernel_function, "cuKernelGetFunction");
  library.require(calls.launch, "cuLaunchKernel");
  return calls;
}

void check_driver(const KernelCalls& calls, int code, std::string_view what) {
  if (code == 0) return;
  const char* reason = nullptr;
  if (calls.error_string(code, &reason) != 0 || reason == nullptr) reason = "unknown error";
  throw RuntimeError(fmt::format("the GPU cannot {}: {} ({})", what, reason, code));
}

}  // namespace ddp::kernels
