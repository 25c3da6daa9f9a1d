// SPDX-License-Identifier: Apache-2.0
// The functions of NVIDIA's CUDA driver that copy data, as a table that is filled at run time. The
// driver's own library is enough: no toolkit and no CUDA runtime are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "ddp_runtime/check/findings/dynamic_library.h"

namespace ddp::check::cuda {

using Code = int;
using Context = void*;
using Stream = void*;
using Memory = std::uint64_t;  // an address

inline constexpr Code kSuccess = 0;
inline constexpr Code kNoDevice = 100;
inline constexpr Code kUncorrectableMemoryError = 214;
inline constexpr Code kUncorrectableLinkError = 220;
inline constexpr Code kNotReady = 600;
inline constexpr Code kPeerAccessAlreadyEnabled = 704;
inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr unsigned kPortable = 1;  // pinned for all GPUs

struct Functions {
  // Throws RuntimeError if the library cannot be loaded or lacks a function.
  explicit Functions(const std::string& name) : library(name) {}

  DynamicLibrary library;  // first: the functions below are looked up in it
  Code (*const error_string)(Code, const char**) = find<decltype(error_string)>("cuGetErrorString");
  Code (*const init)(unsigned) = find<decltype(init)>("cuInit");
  Code (*const count)(int*) = find<decltype(count)>("cuDeviceGetCount");
  Code (*const get)(int*, int) = find<decltype(get)>("cuDeviceGet");
  Code (*const bus_address)(char*, int, int) = find<decltype(bus_address)>("cuDeviceGetPCIBusId");
  Code (*const retain)(Context*, int) = find<decltype(retain)>("cuDevicePrimaryCtxRetain");
  Code (*const release)(int) = find<decltype(release)>("cuDevicePrimaryCtxRelease_v2");
  Code (*const set_current)(Context) = find<decltype(set_current)>("cuCtxSetCurrent");
  Code (*const create_stream)(Stream*, unsigned) = find<decltype(create_stream)>("cuStreamCreate");
  Code (*const query)(Stream) = find<decltype(query)>("cuStreamQuery");
  Code (*const allocate)(Memory*, std::size_t) = find<decltype(allocate)>("cuMemAlloc_v2");
  Code (*const free)(Memory) = find<decltype(free)>("cuMemFree_v2");
  Code (*const allocate_pinned)(void**, std::size_t,
                                unsigned) = find<decltype(allocate_pinned)>("cuMemHostAlloc");
  Code (*const clear)(Memory, unsigned char, std::size_t,
                      Stream) = find<decltype(clear)>("cuMemsetD8Async");
  Code (*const to_gpu)(Memory, const void*, std::size_t,
                       Stream) = find<decltype(to_gpu)>("cuMemcpyHtoDAsync_v2");
  Code (*const from_gpu)(void*, Memory, std::size_t,
                         Stream) = find<decltype(from_gpu)>("cuMemcpyDtoHAsync_v2");
  Code (*const between)(Memory, Context, Memory, Context, std::size_t,
                        Stream) = find<decltype(between)>("cuMemcpyPeerAsync");
  Code (*const can_access)(int*, int, int) = find<decltype(can_access)>("cuDeviceCanAccessPeer");
  Code (*const enable_access)(Context,
                              unsigned) = find<decltype(enable_access)>("cuCtxEnablePeerAccess");

 private:
  template <class Pointer>
  std::remove_const_t<Pointer> find(const char* name) const {
    return reinterpret_cast<std::remove_const_t<Pointer>>(library.require(name));
  }
};

}  // namespace ddp::check::cuda
