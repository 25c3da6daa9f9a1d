// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/nccl/nccl_calls.h"

#include <fmt/format.h>

#include <bit>
#include <thread>

#include "base/errors.h"

namespace ddp::check {
namespace {

void require_cuda(const cuda::Driver& driver, cuda::Code code, const char* what) {
  if (code == cuda::kSuccess) return;
  throw RuntimeError(fmt::format("CUDA cannot {}: {}", what, cuda::error_text(driver, code)));
}

void require_nccl(const nccl::Messages& nccl, int code, const char* what) {
  if (code == nccl::kSuccess || code == nccl::kInProgress) return;
  throw RuntimeError(fmt::format("NCCL cannot {}: {}", what, nccl.error_string(code)));
}

}  // namespace

// ---- the CUDA driver

CudaGpu::CudaGpu(const std::string& library) : driver_{gpu::SharedLibrary(library)} {
  require_cuda(driver_, driver_.init(0), "start");
  require_cuda(driver_, driver_.get(&device_, 0), "find a GPU");
  // The primary context is the one that NCCL uses.
  cuda::Context context = nullptr;
  require_cuda(driver_, driver_.retain(&context, device_), "use the GPU");
  require_cuda(driver_, driver_.set_current(context), "use the GPU");
  require_cuda(driver_, driver_.create_stream(&stream_, cuda::kNonBlockingStream),
               "create a stream");
}

// Releasing the context also releases its memory and its stream.
CudaGpu::~CudaGpu() {
  driver_.release(device_);
}

int CudaGpu::count(const std::string& library) {
  const cuda::Driver driver{gpu::SharedLibrary(library)};
  require_cuda(driver, driver.init(0), "start");
  int count = 0;
  require_cuda(driver, driver.count(&count), "count the GPUs");
  return count;
}

std::uint64_t CudaGpu::allocate(std::size_t bytes) {
  cuda::Memory memory = 0;
  require_cuda(driver_, driver_.allocate(&memory, bytes), "allocate GPU memory");
  return memory;
}

void CudaGpu::upload(std::uint64_t to, std::span<const std::byte> from) {
  require_cuda(driver_, driver_.upload(to, from.data(), from.size()), "copy to the GPU");
}

void CudaGpu::download(std::span<std::byte> to, std::uint64_t from) {
  require_cuda(driver_, driver_.download(to.data(), from, to.size()), "copy from the GPU");
}

bool CudaGpu::idle() const {
  const cuda::Code code = driver_.query(stream_);
  if (code == cuda::kNotReady) return false;
  require_cuda(driver_, code, "run the work queued on the stream");
  return true;
}

// ---- NCCL

std::string NcclPair::version(const std::string& library) {
  const nccl::Messages nccl{gpu::SharedLibrary(library)};
  int version = 0;
  require_nccl(nccl, nccl.get_version(&version), "report its version");
  return nccl::release_of(version);
}

nccl::UniqueId NcclPair::make_id(const std::string& library) {
  const nccl::Messages nccl{gpu::SharedLibrary(library)};
  nccl::UniqueId id{};
  require_nccl(nccl, nccl.get_unique_id(&id), "create an id");
  return id;
}

NcclPair::NcclPair(const std::string& library, const CudaGpu& gpu, const nccl::UniqueId& id,
                   int rank)
    : nccl_{gpu::SharedLibrary(library)}, gpu_(gpu), peer_(1 - rank) {
  require_nccl(nccl_, nccl_.init_rank(&communicator_, 2, id, rank), "connect the two GPUs");
}

// Calls ncclCommAbort because ncclCommDestroy waits for the other end; both are already done.
NcclPair::~NcclPair() {
  if (communicator_ != nullptr) nccl_.abort(communicator_);
}

void NcclPair::send(std::uint64_t memory, std::size_t bytes) {
  require_nccl(nccl_,
               nccl_.send(std::bit_cast<const void*>(memory), bytes, nccl::kUint8, peer_,
                          communicator_, gpu_.stream()),
               "send");
}

void NcclPair::receive(std::uint64_t memory, std::size_t bytes) {
  require_nccl(nccl_,
               nccl_.receive(std::bit_cast<void*>(memory), bytes, nccl::kUint8, peer_,
                             communicator_, gpu_.stream()),
               "receive");
}

// NCCL's own threads detect network errors. The stream then never completes, so the wait polls
// both.
void NcclPair::wait() {
  while (!gpu_.idle()) {
    int error = nccl::kSuccess;
    require_nccl(nccl_, nccl_.get_async_error(communicator_, &error),
                 "check the transfer for errors");
    require_nccl(nccl_, error, "transfer data");
    std::this_thread::yield();
  }
}

}  // namespace ddp::check
