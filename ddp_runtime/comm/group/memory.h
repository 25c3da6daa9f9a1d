// SPDX-License-Identifier: Apache-2.0
// Where a buffer lies, and the stream of a device that uses it.
#pragma once

#include <cstdint>

namespace ddp::comm {

enum class Memory : std::uint8_t { host, device };

// A stream of a device, such as a cudaStream_t. nullptr is the device's default stream.
using DeviceStream = void*;

}  // namespace ddp::comm
