// SPDX-License-Identifier: Apache-2.0
// Checks whether this process may open all GPU device files.
#pragma once

#include <string>

namespace ddp::launch {

// Returns true if a GPU device file exists that this process may not open, for example because
// SLURM constrains devices by cgroup. A wider CUDA_VISIBLE_DEVICES then does not show more GPUs.
// NVIDIA's files are nvidia0, nvidia1, ...; AMD's are dri/renderD128, ... if sysfs shows the driver
// amdgpu.
bool hides_gpu_devices(const std::string& device_root = "/dev",
                       const std::string& drm_root = "/sys/class/drm") noexcept;

}  // namespace ddp::launch
