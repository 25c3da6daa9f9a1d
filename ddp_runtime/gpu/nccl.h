// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL, as tables that are filled at run time. RCCL has the same names and types.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <string>

#include "ddp_runtime/gpu/cuda_types.h"
#include "ddp_runtime/gpu/shared_library.h"

namespace ddp::nccl {

inline constexpr const char* kLibrary = "libnccl.so.2";

using Comm = void*;    // ncclComm_t
using Window = void*;  // ncclWindow_t

// Values of NCCL's enumerations, which are part of its binary interface. ncclNumResults is not
// here: it changes between versions.
inline constexpr int kSuccess = 0;
inline constexpr int kUnhandledCudaError = 1;
inline constexpr int kSystemError = 2;
inline constexpr int kInvalidArgument = 4;
inline constexpr int kInvalidUsage = 5;
inline constexpr int kRemoteError = 6;
inline constexpr int kInProgress = 7;
inline constexpr int kUint8 = 1;
inline constexpr int kWindowCollSymmetric = 1;
inline constexpr std::size_t kWindowAlignment = 4096;
// The first version whose ncclConfig_t is the one below.
inline constexpr int kMinVersion = 21801;

struct UniqueId {  // ncclUniqueId; passed by value
  std::array<char, 128> bytes;
};

// ncclConfig_t of version 2.18.1. Later versions append fields. NCCL reads as many bytes as `size`
// says, so its defaults hold for the others.
struct Config {
  static constexpr int kUndefined = INT_MIN;

  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kMinVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

// What two ranks need to exchange messages; all versions since 2.7 have it. All functions return an
// ncclResult_t, except for those that return texts.
struct Messages {
  gpu::SharedLibrary library = {};  // first: the functions below are looked up in it
  const char* (*error_string)(int) = library["ncclGetErrorString"];
  int (*get_version)(int*) = library["ncclGetVersion"];
  int (*get_unique_id)(UniqueId*) = library["ncclGetUniqueId"];
  int (*init_rank)(Comm*, int, UniqueId, int) = library["ncclCommInitRank"];
  int (*get_async_error)(Comm, int*) = library["ncclCommGetAsyncError"];
  int (*abort)(Comm) = library["ncclCommAbort"];
  int (*send)(const void*, std::size_t, int, int, Comm, cuda::Stream) = library["ncclSend"];
  int (*receive)(void*, std::size_t, int, int, Comm, cuda::Stream) = library["ncclRecv"];
};

// What the backend needs.
struct Functions : Messages {
  int (*init_rank_config)(Comm*, int, UniqueId, int, Config*) = library["ncclCommInitRankConfig"];
  int (*finalize)(Comm) = library["ncclCommFinalize"];
  int (*destroy)(Comm) = library["ncclCommDestroy"];
  int (*all_reduce)(const void*, void*, std::size_t, int, int, Comm,
                    cuda::Stream) = library["ncclAllReduce"];
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, Comm,
                        cuda::Stream) = library["ncclReduceScatter"];
  int (*all_gather)(const void*, void*, std::size_t, int, Comm,
                    cuda::Stream) = library["ncclAllGather"];
  int (*broadcast)(const void*, void*, std::size_t, int, int, Comm,
                   cuda::Stream) = library["ncclBroadcast"];
  int (*group_start)() = library["ncclGroupStart"];
  int (*group_end)() = library["ncclGroupEnd"];

  // nullptr if the version does not have them.
  const char* (*last_error)(Comm) = library.find("ncclGetLastError");               // 2.13
  int (*allocate)(void**, std::size_t) = library.find("ncclMemAlloc");              // 2.19
  int (*free)(void*) = library.find("ncclMemFree");                                 // 2.19
  int (*add)(Comm, void*, std::size_t, void**) = library.find("ncclCommRegister");  // 2.19
  int (*remove)(Comm, void*) = library.find("ncclCommDeregister");                  // 2.19
  int (*add_window)(Comm, void*, std::size_t, Window*,
                    int) = library.find("ncclCommWindowRegister");                // 2.27
  int (*remove_window)(Comm, Window) = library.find("ncclCommWindowDeregister");  // 2.27

  int version = 0;  // 22809 for 2.28.9
};

// "2.28.9" for 22809.
std::string release_of(int version);

// See SharedLibrary for where NCCL is looked for. Throws UsageError if it is not found or too old.
Functions load(const std::string& path = {});

}  // namespace ddp::nccl
