// SPDX-License-Identifier: Apache-2.0
// Whether this process may use GPUs other than its own.
#pragma once

#include <string>

namespace ddp::launch {

// True if a GPU device file exists that this process may not open, as where SLURM constrains
// devices by cgroup: a wider CUDA_VISIBLE_DEVICES then does not show more GPUs. NVIDIA's files are
// nvidia0, nvidia1, ...; AMD's are dri/renderD128, ... if sysfs shows the driver amdgpu.
bool hides_gpu_devices(const std::string& device_root = "/dev",
                       const std::string& drm_root = "/sys/class/drm") noexcept;

}  // namespace ddp::launch
