// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/kernels/check.h"

namespace ddp::kernels {
namespace {

// Returns the sum of the block's values to its first thread.
__device__ double block_sum(double* sums, double value) {
  sums[threadIdx.x] = value;
  for (std::uint32_t half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    tree_step(sums, half, threadIdx.x);
  }
  return sums[0];
}

template <class Element>
__device__ void check(const CheckArguments& a) {
  __shared__ double sums[kThreads];
  __shared__ bool is_last;
  const double sum = block_sum(sums, thread_sum<Element>(a, this_lane()));
  if (threadIdx.x == 0) {
    a.partials[blockIdx.x] = sum;
    __threadfence();  // the partial before the ticket
    // Counts to the number of blocks, then begins at 0 again, for the next launch.
    is_last = atomicInc(a.ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();  // the ticket before the partials
  const double total = block_sum(sums, sum_of_partials(a.partials, gridDim.x, threadIdx.x));
  if (threadIdx.x == 0) write_result(a, total);
}

}  // namespace
}  // namespace ddp::kernels

using ddp::kernels::CheckArguments;
using ddp::kernels::kBlocksPerProcessor;
using ddp::kernels::kThreads;

extern "C" {

__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_check_f32(const CheckArguments a) {
  ddp::kernels::check<ddp::kernels::F32>(a);
}
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_check_bf16(const CheckArguments a) {
  ddp::kernels::check<ddp::kernels::Bf16>(a);
}
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_check_f16(const CheckArguments a) {
  ddp::kernels::check<ddp::kernels::F16>(a);
}

}  // extern "C"
