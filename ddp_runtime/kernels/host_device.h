// SPDX-License-Identifier: Apache-2.0
// What a kernel's body knows of the grid that runs it. The bodies are in headers that nvcc compiles
// for GPUs and every C++ compiler for CPUs, so that tests run them without a GPU, one thread of the
// grid after the other.
#pragma once

#include <cstdint>

// A function for both sides. CUDA has no other way to say so than an attribute.
#ifdef __CUDACC__
#define SLURM_DDP_HOST_DEVICE __host__ __device__
#else
#define SLURM_DDP_HOST_DEVICE
#endif

namespace ddp::kernels {

// Threads of a block, in all kernels.
inline constexpr std::uint32_t kThreads = 256;

// Blocks of a launch for each multiprocessor of the GPU, which run at the same time: enough to keep
// the memory busy, and few enough for NCCL's kernels to find room. The compiler limits registers to
// a block's share of them.
inline constexpr int kBlocksPerProcessor = 3;

// One thread of a grid.
struct Lane {
  std::uint64_t block = 0;
  std::uint64_t blocks = 1;
  std::uint32_t thread = 0;
};

#ifdef __CUDACC__
__device__ inline Lane this_lane() {
  return {blockIdx.x, gridDim.x, threadIdx.x};
}
#endif

}  // namespace ddp::kernels
