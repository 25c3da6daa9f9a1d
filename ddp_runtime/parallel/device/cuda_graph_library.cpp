// SPDX-License-Identifier: Apache-2.0
// A library of its own, libslurm_ddp_cuda_graph.so, because it needs libtorch's CUDA half and
// CUDA's headers by name. It exports one function, for make_cuda_graph().
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "ddp_runtime/parallel/device/device_graph.h"

namespace ddp {
namespace {

class Silence final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(c10::DeviceIndex device) : device_(device) {}

  // Blocks that the program has freed would stay beside those of the graph.
  void begin_capture() override {
    const c10::cuda::CUDAGuard guard(device_);
    c10::cuda::CUDACachingAllocator::emptyCache();
    begin_part();
  }
  void cut() override {
    const c10::cuda::CUDAGuard guard(device_);
    end_inner_part();
    begin_part();
  }
  void end_capture() override {
    const c10::cuda::CUDAGuard guard(device_);
    parts_.back()->capture_end();
  }
  void replay(std::size_t part) override {
    const c10::cuda::CUDAGuard guard(device_);
    parts_.at(part)->replay();
  }

 private:
  // All parts use the memory of the first one, since they are replayed in their order. In the mode
  // "relaxed", a part may end on another thread than the one on which it began, and calls that
  // CUDA otherwise forbids, such as an allocation of the loader, do not concern the capture. Random
  // numbers continue in each replay: CUDAGraph knows the default generator of the device.
  void begin_part() {
    const auto pool = parts_.empty() ? c10::MempoolId_t{0, 0} : parts_.front()->pool();
    parts_.push_back(std::make_unique<at::cuda::CUDAGraph>());
    parts_.back()->capture_begin(pool, cudaStreamCaptureModeRelaxed);
  }

  // CUDAGraph warns of an empty part. Between two collectives there may be nothing to do; that the
  // first part or the last one is empty would be a mistake.
  void end_inner_part() {
    std::optional<c10::WarningUtils::WarningHandlerGuard> guard;
    Silence silence;
    if (parts_.size() > 1) guard.emplace(&silence);
    parts_.back()->capture_end();
  }

  c10::DeviceIndex device_;
  std::vector<std::unique_ptr<at::cuda::CUDAGraph>> parts_;
};

}  // namespace
}  // namespace ddp

// Throws c10::Error. The caller owns the result.
extern "C" __attribute__((visibility("default"))) ddp::DeviceGraph* slurm_ddp_make_cuda_graph(
    int device_index) {
  return std::make_unique<ddp::CudaGraph>(static_cast<c10::DeviceIndex>(device_index)).release();
}
