// SPDX-License-Identifier: Apache-2.0
// One GPU, and NCCL between it and another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ddp_runtime/gpu/cuda_driver.h"
#include "ddp_runtime/gpu/nccl.h"

namespace ddp::check {

// One GPU with a memory allocation and a stream. Calls may hang in the driver, and NCCL calls may
// hang as well, so use both only in a process that can be killed. All calls throw RuntimeError with
// the library's message.
class CudaGpu {
 public:
  // The first GPU that this process may use.
  explicit CudaGpu(const std::string& library);
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;
  ~CudaGpu();

  // The number of GPUs that this process may use.
  static int count(const std::string& library);

  // Allocates GPU memory, which this object frees when it is destroyed.
  std::uint64_t allocate(std::size_t bytes);
  void upload(std::uint64_t to, std::span<const std::byte> from);
  void download(std::span<std::byte> to, std::uint64_t from);
  cuda::Stream stream() const noexcept { return stream_; }
  // Whether all work on the stream is done.
  bool idle() const;

 private:
  cuda::Driver driver_;
  int device_ = 0;
  cuda::Stream stream_ = nullptr;
};

// A communicator of two ranks.
class NcclPair {
 public:
  // "2.18.3".
  static std::string version(const std::string& library);
  static nccl::UniqueId make_id(const std::string& library);

  // Collective over both ranks, which pass the same id. `rank` is 0 or 1. `gpu` must outlive the
  // object.
  NcclPair(const std::string& library, const CudaGpu& gpu, const nccl::UniqueId& id, int rank);
  NcclPair(const NcclPair&) = delete;
  NcclPair& operator=(const NcclPair&) = delete;
  ~NcclPair();

  // Queued on the GPU's stream; wait() returns when all queued work is done.
  void send(std::uint64_t memory, std::size_t bytes);
  void receive(std::uint64_t memory, std::size_t bytes);
  void wait();

 private:
  nccl::Messages nccl_;
  const CudaGpu& gpu_;
  nccl::Comm communicator_ = nullptr;
  int peer_;
};

}  // namespace ddp::check
