// SPDX-License-Identifier: Apache-2.0
// Which entries of CUDA_VISIBLE_DEVICES and similar variables a process gets to see.
#pragma once

#include <string_view>
#include <vector>

namespace ddp {

// Returns the devices of a list such as "0,1" or "GPU-8f3a...,MIG-..." that CUDA shows a process,
// in order: those before the first invalid entry ("0,1,-1,2" shows 0 and 1), and none if one of
// them is listed twice. The pieces point into `list`. Does not know which devices exist.
std::vector<std::string_view> visible_devices(std::string_view list);

}  // namespace ddp
