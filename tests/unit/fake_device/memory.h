// SPDX-License-Identifier: Apache-2.0
// Memory of the fake device, and pinned memory of the host. Internal to the fake device.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace ddp::fake_device {

// Of the current device. Throws c10::OutOfMemoryError.
c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);
// Whether memory of a device begins here or contains this.
bool is_of_device(const void* data);
// The device that owns the memory. Throws c10::Error if there is none.
int device_of(const void* data);
// The memory may be used again only when the stream has done what is on it when the memory is
// freed. Ignores memory that is not of device_allocator().
void record_use(const c10::DataPtr& data, const c10::Stream& stream);

}  // namespace ddp::fake_device
