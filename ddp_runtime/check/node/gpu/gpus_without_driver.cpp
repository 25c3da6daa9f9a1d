// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/gpu/gpus_without_driver.h"

#include <string>

#include "base/text_file.h"
#include "spank_plugin/fabric/files/attribute.h"

namespace ddp::check {

int count_gpus_without_driver(const std::filesystem::path& root) {
  constexpr std::size_t kMaxDevices = 4096;
  constexpr std::string_view kNvidia = "0x10de";
  constexpr std::string_view kDisplay = "0x03";
  const std::filesystem::path devices = root / "sys/bus/pci/devices";
  int count = 0;
  for (const auto& name : fabric::list_names(devices, kMaxDevices)) {
    if (fabric::read_attribute(devices / name / "vendor").value_or("") != kNvidia) continue;
    if (!fabric::read_attribute(devices / name / "class").value_or("").starts_with(kDisplay)) {
      continue;
    }
    std::error_code error;
    const auto driver = std::filesystem::read_symlink(devices / name / "driver", error);
    if (error || driver.filename() == "nouveau") ++count;
  }
  return count;
}

}  // namespace ddp::check
