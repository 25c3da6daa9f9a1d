// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/update_guard.h"

#include "ddp_runtime/train/step/device_guard.h"
#include "ddp_runtime/train/step/forward_pass.h"
#include "ddp_runtime/train/step/host_guard.h"

namespace ddp::train {

void UpdateGuard::begin_step() {
  if (guarded_.watch_losses) buffers_before_ = copy_buffers(guarded_.module);
}

std::unique_ptr<UpdateGuard> make_guard(const UpdateGuard::Guarded& guarded, torch::Device device) {
  if (device.is_cpu()) return std::make_unique<HostGuard>(guarded);
  return std::make_unique<DeviceGuard>(guarded, device);
}

}  // namespace ddp::train
