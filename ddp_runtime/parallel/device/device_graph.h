// SPDX-License-Identifier: Apache-2.0
// Work of a device that is recorded once and repeated by one launch.
//
// Note [Graphs]
// Launching a kernel costs the host microseconds, and a step has hundreds. A graph records a step
// once, as kernels with their arguments, and the device repeats all of them after one launch. It
// repeats the arguments, too: what changes from step to step must be in memory that the kernels
// read, at the same address. So batches are copied into fixed tensors before a replay, and the
// learning rate and the number of the step are numbers in the memory of the device. The code of the
// host does not run again: nothing in the recorded work may depend on a value that the host reads.
//
// Collectives stay outside: the recorded work is cut into parts, and between two parts the program
// starts a collective, or waits for one, as in an eager step. So overlap, watchdog and the
// diagnosis of hangs remain, for one more launch per collective.
//
// While it captures, a device refuses what a graph cannot repeat: waits of the host, values for the
// host, copies from memory that is not page-locked, and times of events.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace ddp {

// Not thread-safe. All functions throw c10::Error if the device refuses them.
class DeviceGraph {
 public:
  // Frees the memory that the recorded work uses, except for tensors that the program still holds.
  // The device must have run the last replay, or run it before it gives that memory to others.
  virtual ~DeviceGraph() = default;
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // What is enqueued on this thread's current stream from now on is recorded, not run, also if
  // other threads enqueue it. The stream must not be the default one. Memory that is allocated on
  // the stream meanwhile belongs to the graph. Call once.
  virtual void begin_capture() = 0;
  // Ends a part of the recorded work, and begins the next one. Any thread whose current stream is
  // the captured one may call it.
  virtual void cut() = 0;
  // Throws if something was refused since begin_capture(), even if that error was caught.
  virtual void end_capture() = 0;
  // Enqueues a part of the recorded work on this thread's current stream, numbered from 0. All
  // parts must be replayed, in their order.
  virtual void replay(std::size_t part) = 0;

 protected:
  DeviceGraph() = default;
};

// In a capture: ends a part. When the work is replayed, `between` runs after that part.
using CutGraph = std::function<void(std::function<void()> between)>;

// Makes a graph for work of a device. Throws UsageError with one sentence if that kind of device
// has no graphs in this program.
using MakeGraph = std::function<std::unique_ptr<DeviceGraph>(torch::Device device)>;

}  // namespace ddp
