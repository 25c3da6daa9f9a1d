// SPDX-License-Identifier: Apache-2.0
// A library of its own, libslurm_ddp_cuda_graph.so, because it needs libtorch's CUDA half and
// CUDA's headers by name. It exports one function, for make_cuda_graph().
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <memory>

#include "ddp_runtime/parallel/device_graph.h"

namespace ddp {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(c10::DeviceIndex device) : device_(device) {}

  // Blocks that the program has freed would stay beside those of the graph. Calls of other threads
  // that CUDA forbids in a capture, such as an allocation of the loader, do not concern it. Random
  // numbers continue in each replay: CUDAGraph knows the default generator of the device.
  void begin_capture() override {
    const c10::cuda::CUDAGuard guard(device_);
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  }
  void end_capture() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.capture_end();
  }
  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
  }

 private:
  c10::DeviceIndex device_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace
}  // namespace ddp

// Throws c10::Error. The caller owns the result.
extern "C" __attribute__((visibility("default"))) ddp::DeviceGraph* slurm_ddp_make_cuda_graph(
    int device_index) {
  return std::make_unique<ddp::CudaGraph>(static_cast<c10::DeviceIndex>(device_index)).release();
}
