// SPDX-License-Identifier: Apache-2.0
// The functions of NVIDIA's CUDA driver that copy data, as a table that is filled at run time. The
// driver's own library is enough: no toolkit and no CUDA runtime are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ddp_runtime/gpu/cuda_types.h"
#include "ddp_runtime/gpu/shared_library.h"

namespace ddp::cuda {

inline constexpr const char* kDriverLibrary = "libcuda.so.1";

using Context = void*;
using Memory = std::uint64_t;  // an address

// Throws RuntimeError if the library lacks a function.
struct Driver {
  gpu::SharedLibrary library;  // first: the functions below are looked up in it
  Code (*error_string)(Code, const char**) = library["cuGetErrorString"];
  Code (*init)(unsigned) = library["cuInit"];
  Code (*count)(int*) = library["cuDeviceGetCount"];
  Code (*get)(int*, int) = library["cuDeviceGet"];
  Code (*bus_address)(char*, int, int) = library["cuDeviceGetPCIBusId"];
  Code (*retain)(Context*, int) = library["cuDevicePrimaryCtxRetain"];
  Code (*release)(int) = library["cuDevicePrimaryCtxRelease_v2"];
  Code (*set_current)(Context) = library["cuCtxSetCurrent"];
  Code (*create_stream)(Stream*, unsigned) = library["cuStreamCreate"];
  Code (*query)(Stream) = library["cuStreamQuery"];
  Code (*allocate)(Memory*, std::size_t) = library["cuMemAlloc_v2"];
  Code (*allocate_pinned)(void**, std::size_t, unsigned) = library["cuMemHostAlloc"];
  Code (*clear)(Memory, unsigned char, std::size_t, Stream) = library["cuMemsetD8Async"];
  Code (*upload)(Memory, const void*, std::size_t) = library["cuMemcpyHtoD_v2"];
  Code (*download)(void*, Memory, std::size_t) = library["cuMemcpyDtoH_v2"];
  Code (*to_gpu)(Memory, const void*, std::size_t, Stream) = library["cuMemcpyHtoDAsync_v2"];
  Code (*from_gpu)(void*, Memory, std::size_t, Stream) = library["cuMemcpyDtoHAsync_v2"];
  Code (*between)(Memory, Context, Memory, Context, std::size_t,
                  Stream) = library["cuMemcpyPeerAsync"];
  Code (*can_access)(int*, int, int) = library["cuDeviceCanAccessPeer"];
  Code (*enable_access)(Context, unsigned) = library["cuCtxEnablePeerAccess"];
};

// "out of memory (2)"
inline std::string error_text(const Driver& driver, Code code) {
  const char* words = nullptr;
  if (driver.error_string(code, &words) != kSuccess || words == nullptr) words = "unknown error";
  return std::string(words) + " (" + std::to_string(code) + ")";
}

}  // namespace ddp::cuda
