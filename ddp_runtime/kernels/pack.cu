// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/kernels/pack.h"

using ddp::kernels::Bf16;
using ddp::kernels::F16;
using ddp::kernels::F32;
using ddp::kernels::kBlocksPerProcessor;
using ddp::kernels::kThreads;
using ddp::kernels::PackArguments;
using ddp::kernels::this_lane;

extern "C" {

__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_pack_f32_f32(const PackArguments a) {
  ddp::kernels::pack<F32, F32>(a, this_lane());
}
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_pack_f32_bf16(const PackArguments a) {
  ddp::kernels::pack<F32, Bf16>(a, this_lane());
}
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_pack_f32_f16(const PackArguments a) {
  ddp::kernels::pack<F32, F16>(a, this_lane());
}
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_pack_bf16_f32(const PackArguments a) {
  ddp::kernels::pack<Bf16, F32>(a, this_lane());
}
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_pack_bf16_bf16(const PackArguments a) {
  ddp::kernels::pack<Bf16, Bf16>(a, this_lane());
}
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_pack_f16_f32(const PackArguments a) {
  ddp::kernels::pack<F16, F32>(a, this_lane());
}
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    slurm_ddp_pack_f16_f16(const PackArguments a) {
  ddp::kernels::pack<F16, F16>(a, this_lane());
}

}  // extern "C"
