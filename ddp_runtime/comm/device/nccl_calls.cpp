// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/nccl_calls.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "ddp_runtime/comm/device/shared_library.h"

namespace ddp::comm {
namespace {

constexpr std::array<const char*, 1> kNcclNames = {"libnccl.so.2"};

// Before the other functions are looked up, because an old library does not have them, and the
// version explains why.
void require_version(NcclCalls& calls) {
  if (calls.get_version(&calls.version) != nccl::kSuccess) {
    throw UsageError(fmt::format("NCCL in {} does not report its version", calls.file));
  }
  if (calls.version >= nccl::kMinVersion) return;
  throw UsageError(fmt::format(
      "NCCL {} in {} is older than {}, the oldest that this program can use; install a newer NCCL, "
      "or use --device cpu",
      nccl_release(calls.version), calls.file, nccl_release(nccl::kMinVersion)));
}

}  // namespace

std::string nccl_release(int version) {
  constexpr int kNewScheme = 10'000;  // versions before 2.9 are numbers such as 2803
  const int major = version < kNewScheme ? version / 1000 : version / 10'000;
  const int rest = version < kNewScheme ? version % 1000 : version % 10'000;
  return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

NcclCalls load_nccl_calls(const std::string& path) {
  const SharedLibrary library("NCCL", kNcclNames, path);
  NcclCalls calls;
  library.require(calls.get_version, "ncclGetVersion");
  calls.file = library.file_of("ncclGetVersion");
  require_version(calls);
  library.require(calls.error_string, "ncclGetErrorString");
  library.require(calls.get_unique_id, "ncclGetUniqueId");
  library.require(calls.init_rank_config, "ncclCommInitRankConfig");
  library.require(calls.get_async_error, "ncclCommGetAsyncError");
  library.require(calls.finalize, "ncclCommFinalize");
  library.require(calls.destroy, "ncclCommDestroy");
  library.require(calls.abort, "ncclCommAbort");
  library.require(calls.all_reduce, "ncclAllReduce");
  library.require(calls.reduce_scatter, "ncclReduceScatter");
  library.require(calls.all_gather, "ncclAllGather");
  library.require(calls.broadcast, "ncclBroadcast");
  library.require(calls.send, "ncclSend");
  library.require(calls.receive, "ncclRecv");
  library.require(calls.group_start, "ncclGroupStart");
  library.require(calls.group_end, "ncclGroupEnd");
  library.find(calls.last_error, "ncclGetLastError");
  library.find(calls.allocate, "ncclMemAlloc");
  library.find(calls.free, "ncclMemFree");
  library.find(calls.add, "ncclCommRegister");
  library.find(calls.remove, "ncclCommDeregister");
  library.find(calls.add_window, "ncclCommWindowRegister");
  library.find(calls.remove_window, "ncclCommWindowDeregister");
  return calls;
}

}  // namespace ddp::comm
