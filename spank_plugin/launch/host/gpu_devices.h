#pragma once
// Whether this process may use the GPUs that are not its own.

#include <string>

namespace ddp::launch {

// True if a device file nvidia0, nvidia1, ... exists and this process may not open it, as where
// SLURM constrains devices by cgroup: then a wider CUDA_VISIBLE_DEVICES shows nothing more.
bool hides_gpu_devices(const std::string& device_root = "/dev") noexcept;

}  // namespace ddp::launch
