// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that the backend needs, as a table that is filled at run time. RCCL has the
// same names and types.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <string>

#include "ddp_runtime/comm/group/element_type.h"
#include "ddp_runtime/comm/group/memory.h"

namespace ddp::comm {

using NcclComm = void*;    // ncclComm_t
using NcclWindow = void*;  // ncclWindow_t

// Values of NCCL's enumerations, which are part of its binary interface. ncclNumResults is not
// here: it changes between versions.
namespace nccl {
inline constexpr int kSuccess = 0;
inline constexpr int kUnhandledCudaError = 1;
inline constexpr int kSystemError = 2;
inline constexpr int kInvalidArgument = 4;
inline constexpr int kInvalidUsage = 5;
inline constexpr int kRemoteError = 6;
inline constexpr int kInProgress = 7;
inline constexpr int kWindowCollSymmetric = 1;
inline constexpr std::size_t kWindowAlignment = 4096;
// The first version whose ncclConfig_t is the one below.
inline constexpr int kMinVersion = 21801;

// NCCL has no 16-bit integers.
constexpr int type_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::i8:
      return 0;
    case ElementType::i16:
      break;
    case ElementType::u8:
      return 1;
    case ElementType::i32:
      return 2;
    case ElementType::i64:
      return 4;
    case ElementType::f16:
      return 6;
    case ElementType::f32:
      return 7;
    case ElementType::f64:
      return 8;
    case ElementType::bf16:
      return 9;
  }
  return -1;
}

constexpr int op_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return 0;
    case ReduceOp::max:
      return 2;
    case ReduceOp::min:
      return 3;
  }
  return -1;
}
}  // namespace nccl

struct NcclId {  // ncclUniqueId; passed by value
  std::array<char, 128> bytes;
};

// ncclConfig_t of version 2.18.1. Later versions append fields. NCCL reads as many bytes as `size`
// says, so its defaults hold for the others.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;

  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = nccl::kMinVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

// All functions return an ncclResult_t, except for the two that return texts.
struct NcclCalls {
  int (*get_version)(int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*get_unique_id)(NcclId*) = nullptr;
  int (*init_rank_config)(NcclComm*, int, NcclId, int, NcclConfig*) = nullptr;
  int (*get_async_error)(NcclComm, int*) = nullptr;
  int (*finalize)(NcclComm) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  int (*abort)(NcclComm) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, NcclComm, DeviceStream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, NcclComm,
                        DeviceStream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int, NcclComm, DeviceStream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int, int, NcclComm, DeviceStream) = nullptr;
  int (*send)(const void*, std::size_t, int, int, NcclComm, DeviceStream) = nullptr;
  int (*receive)(void*, std::size_t, int, int, NcclComm, DeviceStream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;

  // nullptr if the version does not have them.
  const char* (*last_error)(NcclComm) = nullptr;               // 2.13
  int (*allocate)(void**, std::size_t) = nullptr;              // 2.19
  int (*free)(void*) = nullptr;                                // 2.19
  int (*add)(NcclComm, void*, std::size_t, void**) = nullptr;  // ncclCommRegister, 2.19
  int (*remove)(NcclComm, void*) = nullptr;                    // ncclCommDeregister, 2.19
  int (*add_window)(NcclComm, void*, std::size_t, NcclWindow*, int) = nullptr;  // 2.27
  int (*remove_window)(NcclComm, NcclWindow) = nullptr;                         // 2.27

  int version = 0;   // 22809 for 2.28.9
  std::string file;  // the library that contains them, for messages
};

// "2.28.9" for 22809.
std::string nccl_release(int version);

// See SharedLibrary for where NCCL is looked for. Throws UsageError if it is not found or too old.
NcclCalls load_nccl_calls(const std::string& path = {});

}  // namespace ddp::comm
