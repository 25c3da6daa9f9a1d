// SPDX-License-Identifier: Apache-2.0
// A device of libtorch 2.x, of the kind PrivateUse1, whose memory, streams and events are those of
// the fake of CUDA. With it, programs that use tensors run on "GPUs" on machines without one.
//
// Note [Operators of the fake device]
// On a GPU, an operator puts a kernel on the current stream and returns. Here, an operator
// - waits until its stream has run all earlier work, such as a collective that the stream awaits,
// - computes at once, by the CPU's operator on the same memory, and
// - puts a kernel on the stream that reads and writes what the operator did, and does nothing.
//
// The first two steps make results bitwise equal to the CPU's, and give each result its shape,
// which a deferred operator would have to predict. They are like CUDA_LAUNCH_BLOCKING=1: one of the
// orders in which a GPU may run the same program, so they add no deadlock to a program without one.
//
// The third step is the one that finds errors. The fake orders accesses by logical time: a stream
// has seen what was on it, what the events for which it waits have seen, and what the calling
// thread has seen. The first step teaches the thread nothing, so a kernel that reads the result of
// a collective without a wait of its stream is reported by fake::problems(), although the value
// that it read is the right one. For the same reason, only the waits that a GPU would need count as
// host waits: a value or a copy that the host needs, an operator whose result has a shape that
// depends on values, and the synchronization of a stream, an event or a device. Copies between the
// device and pinned host memory with non_blocking do not count.
//
// Freed memory counts as written by the stream on which it was allocated, because the caching
// allocator of a GPU gives it to the next request on that stream. Thus a tensor that another stream
// still uses when it is freed is reported, unless record_stream() was called.
//
// A copy to pinned memory for which the host does not wait is different: it arrives when its stream
// comes to it, which fake::hold() delays, and the memory has other values before. So a host that
// reads it too early reads nonsense.
//
// Not simulated: other values that a program reads too early, kernels that fail by themselves (see
// fake::break_device), time, and reuse of memory. A stream that stands still for a minute
// (fake::hold) is an error of the next operator.
//
// Note [Graphs of the fake device]
// An operator on a stream that is captured computes, too, because it has to give its result a
// shape. But it does not change memory that was there before the capture: it writes to a copy,
// which is dropped at the end. The memory of its results belongs to the graph, and contains NaN
// until the first replay. A replay runs the operators again, on the real memory, in the order of
// the capture, and each puts its accesses on the stream as if it had been called. So a program that
// forgets to copy a batch to where the graph reads it computes with the old batch, as on a GPU.
// Parts of a graph must be replayed in their order, because they share memory.
//
// A capture refuses what CUDA refuses in the mode "thread local", with its words: waits of the host
// and values for it, copies with pageable memory, allocations other than those of libtorch, and
// questions about events of the capture. Not simulated: captures of several streams, of copies
// between devices and of collectives, and operators that resize memory older than the capture.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/device/device_graph.h"
#include "tests/unit/comm/fake_gpu/fake_gpu.h"

namespace ddp::fake_device {

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
// libtorch starts a thread for each device before the first backward, so that their number is
// constant.
inline constexpr int kDevices = 4;

// Begins with fresh GPUs. Must be called before the first use; no tensor, stream or event of the
// device may be used afterwards. `knobs.devices` must be kDevices.
void reset(const fake::Knobs& knobs = {});
// Destroys the streams, and the memory that was freed while kernels used it. Afterwards,
// fake::leaks() is empty unless tensors or events of the device remain.
void release();

// The operators and functions, such as "aten::_local_scalar_dense", for which the host waited since
// reset() or forget_host_waits(), on all devices and threads.
std::vector<std::string> host_wait_names();
int host_waits();
void forget_host_waits();
// The operators, copies and replays that the program has put on streams since reset(), on all
// devices and threads.
int launches();

inline c10::Device device(int index = 0) {
  return {kType, static_cast<c10::DeviceIndex>(index)};
}
// A graph for work of a device, for tests: see MakeGraph.
std::unique_ptr<DeviceGraph> make_graph(torch::Device of);
// The handle of a stream for comm::Buffer: nullptr for the default stream.
void* handle_of(const c10::Stream& stream);
// The current stream of this thread.
c10::Stream current_stream(int device_index = 0);

}  // namespace ddp::fake_device
