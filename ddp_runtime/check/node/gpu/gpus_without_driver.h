// SPDX-License-Identifier: Apache-2.0
// GPUs on the PCI bus that NVIDIA's driver does not serve.
#pragma once

#include <filesystem>

namespace ddp::check {

// The number of NVIDIA's GPUs without a driver, or with the kernel's own one, which cannot compute.
// GPUs that are passed to virtual machines have a driver and do not count.
int count_gpus_without_driver(const std::filesystem::path& root);

}  // namespace ddp::check
