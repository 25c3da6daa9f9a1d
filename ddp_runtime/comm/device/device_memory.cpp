// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/device_memory.h"

#include "ddp_runtime/comm/device/nccl_group.h"
#include "ddp_runtime/comm/device/staged_group.h"

namespace ddp::comm {

std::size_t device_memory_of(const Group& group) {
  if (const auto* const nccl = dynamic_cast<const NcclGroup*>(&group)) {
    return nccl->device_memory();
  }
  if (const auto* const staged = dynamic_cast<const StagedGroup*>(&group)) {
    return staged->device_memory();
  }
  return 0;
}

}  // namespace ddp::comm
