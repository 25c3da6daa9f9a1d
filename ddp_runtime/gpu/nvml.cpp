// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/gpu/nvml.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddp::nvml {

std::string words_of(Code code) {
  switch (code) {
    case kNoSuchFunction:
      return "this driver's library lacks the function";
    case 4:
      return "no permission";
    case 9:
      return "the driver is not loaded";
    case 10:
      return "the driver did not answer in time";
    case kGpuIsLost:
      return "the GPU is lost: it fell off the bus";
    case kResetRequired:
      return "the GPU must be reset";
    case 18:
      return "driver and library have different versions";
    default:
      return fmt::format("NVML error {}", code);
  }
}

gpu::Symbol Lookup::find(const std::string& purpose, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto found = library_.find(name); found.address != nullptr) return found;
  }
  const bool listed = std::any_of(
      missing_.begin(), missing_.end(),
      [&purpose](const std::string& entry) { return entry.starts_with(purpose + " ("); });
  if (!purpose.empty() && !listed) {
    missing_.push_back(fmt::format("{} (no {})", purpose, *names.begin()));
  }
  return {};
}

}  // namespace ddp::nvml
