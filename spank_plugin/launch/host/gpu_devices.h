#pragma once
// Whether this process may use the GPUs that are not its own.

#include <string>

namespace ddp::launch {

// True if a device file of a GPU exists and this process may not open it, as where SLURM constrains
// devices by cgroup: then a wider CUDA_VISIBLE_DEVICES shows nothing more. NVIDIA's are nvidia0,
// nvidia1, ...; AMD's are dri/renderD128, ... where the driver amdgpu says so in sysfs.
bool hides_gpu_devices(const std::string& device_root = "/dev",
                       const std::string& drm_root = "/sys/class/drm") noexcept;

}  // namespace ddp::launch
