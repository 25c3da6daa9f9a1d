// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/gpu_devices.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "spank_plugin/fabric/files/attribute.h"

namespace ddp::launch {

namespace {

bool is_closed(const std::string& path) noexcept {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) close(fd);
  return fd < 0 && (errno == EPERM || errno == EACCES);
}

}  // namespace

bool hides_gpu_devices(const std::string& device_root, const std::string& drm_root) noexcept {
  constexpr int kMaxDevices = 64;
  constexpr int kFirstRender = 128;
  try {
    for (int device = 0; device < kMaxDevices; ++device) {
      if (is_closed(device_root + "/nvidia" + std::to_string(device))) return true;
    }
    // Other drivers, including NVIDIA's, also create these files, often with access for one group
    // only.
    for (int device = kFirstRender; device < kFirstRender + kMaxDevices; ++device) {
      const std::string name = "renderD" + std::to_string(device);
      const auto driver = fabric::read_link_name(
          std::string(drm_root).append("/").append(name).append("/device/driver"));
      if (driver == "amdgpu" && is_closed(std::string(device_root).append("/dri/").append(name)))
        return true;
    }
  } catch (...) {  // no memory for the path
  }
  return false;
}

}  // namespace ddp::launch
