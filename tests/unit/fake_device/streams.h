// SPDX-License-Identifier: Apache-2.0
// Streams of the fake device, and waiting for them. Internal to the fake device.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <string>
#include <vector>

#include "ddp_runtime/gpu/cuda_runtime.h"
#include "tests/unit/fake_device/fake_device.h"

namespace ddp::fake_device {

const cuda::Runtime& calls();

// Throws c10::Error if `code` is an error of the CUDA runtime.
void check(int code, const char* what);
// Throws c10::Error if a kernel of the device has failed.
void require_working(int device_index);

// Waits until all work on the stream has run, without the thread learning it; see
// Note [Operators of the fake device]. Throws c10::Error if that takes a minute, or if the device
// is broken.
void drain(const c10::Stream& stream);
// What a program does that waits for a stream: drains it, counts the wait under `name`, and the
// thread has seen what the stream has seen.
void wait_on_host(const c10::Stream& stream, const std::string& name);
void count_host_wait(const std::string& name);
void count_launch();
// A kernel on a stream that accesses memory; `run` is what it does, and must not call the fake.
void launch(const c10::Stream& stream, const std::string& name,
            const std::vector<fake::Range>& reads, const std::vector<fake::Range>& writes,
            const std::function<void()>& run = {});
// The program has dropped the memory, which work on the stream may use from now on.
void reuse(const c10::Stream& stream, const fake::Range& range);
// Whether work that has not run yet uses the memory.
bool in_use(const fake::Range& range);

c10::Stream stream_number(int device_index, c10::StreamId id);  // 0: the default stream
c10::Stream stream_of_pool(int device_index, bool high);
c10::Stream new_stream(int device_index);
// All streams that have been used since reset().
std::vector<c10::Stream> streams_in_use(int device_index);
// Of this thread and the stream's device.
void make_current(const c10::Stream& stream);

// The number of reset() calls. Objects of earlier ones are gone.
int generation();
// Forgets all streams, with or without destroying them.
void forget_streams(bool destroys);
void release_memory(bool frees);

}  // namespace ddp::fake_device
