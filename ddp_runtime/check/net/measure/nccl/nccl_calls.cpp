// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/nccl/nccl_calls.h"

#include <fmt/format.h>

#include <bit>
#include <functional>
#include <thread>

#include "base/errors.h"
#include "ddp_runtime/check/findings/dynamic_library.h"

namespace ddp::check {
namespace {

// Constants of the CUDA driver and NCCL, copied from their headers.
constexpr int kNoError = 0;
constexpr int kCudaNotReady = 600;
constexpr int kNcclInProgress = 7;
constexpr unsigned kNonBlockingStream = 1;
constexpr int kNcclUint8 = 1;

template <class Signature>
std::function<Signature> function_in(const DynamicLibrary& library, const char* name) {
  return reinterpret_cast<Signature*>(library.require(name));
}

// "2.18.3" for 21803; versions before 2.9 used a different encoding, such as 2803.
std::string version_text(int code) {
  constexpr int kNewScheme = 10'000;
  const int major = code < kNewScheme ? code / 1000 : code / 10'000;
  const int rest = code < kNewScheme ? code % 1000 : code % 10'000;
  return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

}  // namespace

// ---- the CUDA driver

struct CudaGpu::Calls {
  explicit Calls(const std::string& name) : library(name) {}

  void check(int code, const char* what) const {
    if (code == kNoError) return;
    const char* words = nullptr;
    if (error_string(code, &words) != kNoError || words == nullptr) words = "unknown error";
    throw RuntimeError(fmt::format("CUDA cannot {}: {} ({})", what, words, code));
  }

  DynamicLibrary library;  // first: the functions below are looked up in it
  std::function<int(int, const char**)> error_string =
      function_in<int(int, const char**)>(library, "cuGetErrorString");
  std::function<int(unsigned)> init = function_in<int(unsigned)>(library, "cuInit");
  std::function<int(int*)> device_count = function_in<int(int*)>(library, "cuDeviceGetCount");
  std::function<int(int*, int)> device_get = function_in<int(int*, int)>(library, "cuDeviceGet");
  std::function<int(void**, int)> retain =
      function_in<int(void**, int)>(library, "cuDevicePrimaryCtxRetain");
  std::function<int(int)> release = function_in<int(int)>(library, "cuDevicePrimaryCtxRelease_v2");
  std::function<int(void*)> set_current = function_in<int(void*)>(library, "cuCtxSetCurrent");
  std::function<int(void**, unsigned)> stream_create =
      function_in<int(void**, unsigned)>(library, "cuStreamCreate");
  std::function<int(void*)> stream_query = function_in<int(void*)>(library, "cuStreamQuery");
  std::function<int(std::uint64_t*, std::size_t)> allocate =
      function_in<int(std::uint64_t*, std::size_t)>(library, "cuMemAlloc_v2");
  std::function<int(std::uint64_t, const void*, std::size_t)> to_device =
      function_in<int(std::uint64_t, const void*, std::size_t)>(library, "cuMemcpyHtoD_v2");
  std::function<int(void*, std::uint64_t, std::size_t)> to_host =
      function_in<int(void*, std::uint64_t, std::size_t)>(library, "cuMemcpyDtoH_v2");
};

CudaGpu::CudaGpu(const std::string& library) : calls_(std::make_unique<Calls>(library)) {
  calls_->check(calls_->init(0), "start");
  calls_->check(calls_->device_get(&device_, 0), "find a GPU");
  // The primary context is the one that NCCL uses.
  void* context = nullptr;
  calls_->check(calls_->retain(&context, device_), "use the GPU");
  calls_->check(calls_->set_current(context), "use the GPU");
  calls_->check(calls_->stream_create(&stream_, kNonBlockingStream), "create a stream");
}

// Releasing the context also releases its memory and its stream.
CudaGpu::~CudaGpu() {
  calls_->release(device_);
}

int CudaGpu::count(const std::string& library) {
  const Calls calls(library);
  calls.check(calls.init(0), "start");
  int count = 0;
  calls.check(calls.device_count(&count), "count the GPUs");
  return count;
}

std::uint64_t CudaGpu::allocate(std::size_t bytes) {
  std::uint64_t memory = 0;
  calls_->check(calls_->allocate(&memory, bytes), "allocate GPU memory");
  return memory;
}

void CudaGpu::upload(std::uint64_t to, std::span<const std::byte> from) {
  calls_->check(calls_->to_device(to, from.data(), from.size()), "copy to the GPU");
}

void CudaGpu::download(std::span<std::byte> to, std::uint64_t from) {
  calls_->check(calls_->to_host(to.data(), from, to.size()), "copy from the GPU");
}

bool CudaGpu::idle() const {
  const int code = calls_->stream_query(stream_);
  if (code == kCudaNotReady) return false;
  calls_->check(code, "run the work queued on the stream");
  return true;
}

// ---- NCCL

struct NcclPair::Calls {
  struct UniqueId {  // passed by value, as in NCCL's API
    Id bytes;
  };

  explicit Calls(const std::string& name) : library(name) {}

  void check(int code, const char* what) const {
    if (code == kNoError || code == kNcclInProgress) return;
    throw RuntimeError(fmt::format("NCCL cannot {}: {}", what, error_string(code)));
  }

  DynamicLibrary library;  // first: the functions below are looked up in it
  std::function<const char*(int)> error_string =
      function_in<const char*(int)>(library, "ncclGetErrorString");
  std::function<int(int*)> get_version = function_in<int(int*)>(library, "ncclGetVersion");
  std::function<int(UniqueId*)> get_id = function_in<int(UniqueId*)>(library, "ncclGetUniqueId");
  std::function<int(void**, int, UniqueId, int)> init =
      function_in<int(void**, int, UniqueId, int)>(library, "ncclCommInitRank");
  std::function<int(void*)> abort = function_in<int(void*)>(library, "ncclCommAbort");
  std::function<int(void*, int*)> async_error =
      function_in<int(void*, int*)>(library, "ncclCommGetAsyncError");
  std::function<int(const void*, std::size_t, int, int, void*, void*)> send =
      function_in<int(const void*, std::size_t, int, int, void*, void*)>(library, "ncclSend");
  std::function<int(void*, std::size_t, int, int, void*, void*)> receive =
      function_in<int(void*, std::size_t, int, int, void*, void*)>(library, "ncclRecv");
};

std::string NcclPair::version(const std::string& library) {
  const Calls calls(library);
  int version = 0;
  calls.check(calls.get_version(&version), "report its version");
  return version_text(version);
}

NcclPair::Id NcclPair::make_id(const std::string& library) {
  const Calls calls(library);
  Calls::UniqueId id{};
  calls.check(calls.get_id(&id), "create an id");
  return id.bytes;
}

NcclPair::NcclPair(const std::string& library, const CudaGpu& gpu, const Id& id, int rank)
    : calls_(std::make_unique<Calls>(library)), gpu_(gpu), peer_(1 - rank) {
  calls_->check(calls_->init(&communicator_, 2, {id}, rank), "connect the two GPUs");
}

// Calls ncclCommAbort because ncclCommDestroy waits for the other end; both are already done.
NcclPair::~NcclPair() {
  if (communicator_ != nullptr) calls_->abort(communicator_);
}

void NcclPair::send(std::uint64_t memory, std::size_t bytes) {
  calls_->check(calls_->send(std::bit_cast<const void*>(memory), bytes, kNcclUint8, peer_,
                             communicator_, gpu_.stream()),
                "send");
}

void NcclPair::receive(std::uint64_t memory, std::size_t bytes) {
  calls_->check(calls_->receive(std::bit_cast<void*>(memory), bytes, kNcclUint8, peer_,
                                communicator_, gpu_.stream()),
                "receive");
}

// NCCL's own threads detect network errors. The stream then never completes, so the wait polls
// both.
void NcclPair::wait() {
  while (!gpu_.idle()) {
    int error = kNoError;
    calls_->check(calls_->async_error(communicator_, &error), "check the transfer for errors");
    calls_->check(error, "transfer data");
    std::this_thread::yield();
  }
}

}  // namespace ddp::check
