// SPDX-License-Identifier: Apache-2.0
// Autocast of the fake device: libtorch's lists of operators for GPUs. Their macros, which differ
// between releases, expect the names of libtorch's own namespace.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {
namespace {

#define SLURM_DDP_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SLURM_DDP_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define SLURM_DDP_SET_TYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define SLURM_DDP_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(SLURM_DDP_LOWER)
  AT_FORALL_FP32(SLURM_DDP_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(SLURM_DDP_SET_TYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(SLURM_DDP_PROMOTE)
}

}  // namespace
}  // namespace at::autocast
