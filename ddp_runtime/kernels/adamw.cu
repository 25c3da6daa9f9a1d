// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/kernels/adamw.h"

using ddp::kernels::AdamWArguments;
using ddp::kernels::kBlocksPerProcessor;
using ddp::kernels::kThreads;
using ddp::kernels::this_lane;

extern "C" {

__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_adamw_f32(const AdamWArguments a) {
  ddp::kernels::adamw<ddp::kernels::F32>(a, this_lane());
}
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_adamw_bf16(const AdamWArguments a) {
  ddp::kernels::adamw<ddp::kernels::Bf16>(a, this_lane());
}

}  // extern "C"
