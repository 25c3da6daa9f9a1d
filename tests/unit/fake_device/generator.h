// SPDX-License-Identifier: Apache-2.0
// Random numbers of the fake device: each device draws the numbers that the CPU draws with the same
// seed. Internal to the fake device.
#pragma once

#include <ATen/core/Generator.h>

namespace ddp::fake_device {

const at::Generator& default_generator(int device_index);
at::Generator new_generator(int device_index);
// The CPU's generator behind a generator of the device.
at::Generator host_generator(const at::Generator& generator);
at::Generator host_generator(int device_index);

}  // namespace ddp::fake_device
