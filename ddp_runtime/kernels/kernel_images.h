// SPDX-License-Identifier: Apache-2.0
// The machine code of the kernels, which is data of the program: one image for each .cu file, with
// code for several kinds of GPU, in the format that the driver loads.
#pragma once

#include <span>
#include <string_view>

namespace ddp::kernels {

struct KernelImage {
  std::string_view name;  // of the .cu file: "pack"
  std::span<const unsigned char> bytes;
};

// Empty if the build had no nvcc (SLURM_DDP_CUDA_KERNELS in CMakeLists.txt). Lives as long as the
// process.
std::span<const KernelImage> kernel_images();

}  // namespace ddp::kernels
