// The part of NCCL's and the CUDA driver's binary interfaces that a measurement between two GPUs
// needs, loaded if it is there: no build needs either, and a node without GPUs has none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ddp::check {

inline constexpr const char* kNcclLibrary = "libnccl.so.2";
inline constexpr const char* kCudaLibrary = "libcuda.so.1";

// One GPU with memory of its own, and a stream. May hang with the driver, as may Nccl: both belong
// in a process that can be killed. All calls throw RuntimeError with what the library says.
class CudaGpu {
 public:
  // The first GPU that this process may use.
  explicit CudaGpu(const std::string& library);
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;
  ~CudaGpu();

  // How many GPUs this process may use.
  static int count(const std::string& library);

  // Memory of the GPU, kept until the end.
  std::uint64_t allocate(std::size_t bytes);
  void upload(std::uint64_t to, std::span<const std::byte> from);
  void download(std::span<std::byte> to, std::uint64_t from);
  void* stream() const noexcept { return stream_; }
  // Whether all work on the stream is done.
  bool idle() const;

 private:
  struct Calls;
  std::unique_ptr<Calls> calls_;
  int device_ = 0;
  void* stream_ = nullptr;
};

// A communicator of two.
class NcclPair {
 public:
  using Id = std::array<std::byte, 128>;  // ncclUniqueId

  // "2.18.3".
  static std::string version(const std::string& library);
  static Id make_id(const std::string& library);

  // Rank 0 or 1, as both call it with the same id. `gpu` must outlive it.
  NcclPair(const std::string& library, const CudaGpu& gpu, const Id& id, int rank);
  NcclPair(const NcclPair&) = delete;
  NcclPair& operator=(const NcclPair&) = delete;
  ~NcclPair();

  // Put to the GPU's stream; wait() returns when all that was put there is done.
  void send(std::uint64_t memory, std::size_t bytes);
  void receive(std::uint64_t memory, std::size_t bytes);
  void wait();

 private:
  struct Calls;

  std::unique_ptr<Calls> calls_;
  const CudaGpu& gpu_;
  void* communicator_ = nullptr;
  int peer_;
};

}  // namespace ddp::check
