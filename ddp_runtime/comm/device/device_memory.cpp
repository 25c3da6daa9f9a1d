// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/device_memory.h"

#include "ddp_runtime/comm/device/device_group.h"

namespace ddp::comm {

std::size_t device_memory_of(const Group& group) {
  const auto* const devices = dynamic_cast<const DeviceGroup*>(&group);
  return devices == nullptr ? 0 : devices->device_memory();
}

}  // namespace ddp::comm
