// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime. Names, types and error codes match it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/unit/comm/fake_gpu/machine.h"

namespace ddp::fake {
namespace {

constexpr int kCudaSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInsufficientDriver = 35;
constexpr int kNoDevice = 100;
constexpr int kInvalidDevice = 101;
constexpr int kNotReady = 600;
constexpr int kInvalidHandle = 400;
constexpr int kUnsupportedInCapture = 900;
constexpr int kRelaxed = 2;
constexpr unsigned kDisableTiming = 2;

thread_local int current_device = 0;
// Keeps errors until the program asks for them, also the answer "not ready".
thread_local int last_error = 0;

struct Capture {
  int mode = 0;  // of the calls of this thread
  bool captures = false;
  bool valid = true;
};
thread_local Capture capture;

int remember(int code) {
  if (code != kCudaSuccess) last_error = code;
  return code;
}

// The error of a device whose context is broken by a failed kernel, or 0.
int error_of_device(const Machine& machine, int device) {
  const auto found = machine.broken.find(device);
  return found == machine.broken.end() ? kCudaSuccess : found->second;
}

}  // namespace

int device_of_this_thread() {
  return current_device;
}

void begin_capture() {
  capture.captures = true;
  capture.valid = true;
}

bool end_capture() {
  capture.captures = false;
  return capture.valid;
}

bool refused_in_capture() {
  if (!capture.captures || capture.mode == kRelaxed) return false;
  capture.valid = false;
  remember(kUnsupportedInCapture);
  return true;
}

Stream& Machine::stream_of(void* handle) {
  if (handle == nullptr) return *defaults[static_cast<std::size_t>(current_device)];
  const auto found = streams.find(handle);
  if (found == streams.end() || found->second->destroyed) {
    report("a stream is used that does not exist");
    return *defaults.front();
  }
  return *found->second;
}

int allocate(Machine& machine, void** memory, std::size_t bytes, Owner owner) {
  const bool on_host = owner == Owner::page_locked;
  std::size_t& used =
      on_host ? machine.page_locked : machine.used.at(static_cast<std::size_t>(current_device));
  const std::size_t limit = on_host ? machine.knobs.page_locked : machine.knobs.memory;
  if (used + bytes > limit) return kOutOfMemory;
  constexpr std::size_t kPage = 4096;
  auto owned = std::make_unique<std::byte[]>(bytes + kPage);
  std::memset(owned.get(), 0xcd, bytes + kPage);
  const auto begin = (reinterpret_cast<std::uintptr_t>(owned.get()) + kPage - 1) / kPage * kPage;
  used += bytes;
  machine.allocations[begin] = {bytes, on_host ? kHost : current_device, owner, std::move(owned)};
  *memory = reinterpret_cast<void*>(begin);
  return kCudaSuccess;
}

int release(Machine& machine, void* memory, Owner owner) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const auto found = machine.allocations.find(begin);
  if (found == machine.allocations.end()) {
    machine.report("memory is freed that is not allocated");
    return kInvalidValue;
  }
  const auto end = begin + found->second.bytes;
  if (found->second.owner != owner) machine.report("memory is freed by the wrong function");
  std::vector<const Stream*> all;
  for (const auto& [handle, stream] : machine.streams) all.push_back(stream.get());
  for (const auto& stream : machine.defaults) all.push_back(stream.get());
  for (const Stream* stream : all) {
    for (const auto& item : stream->items) {
      for (const auto& range : item->touches) {
        const auto first = reinterpret_cast<std::uintptr_t>(range.data);
        if (range.bytes > 0 && first < end && begin < first + range.bytes) {
          machine.report("memory is freed before " + item->name + " has run");
        }
      }
    }
  }
  for (const auto& communicator : machine.communicators) {
    for (const auto& registration : communicator->registrations) {
      if (registration.begin < end && begin < registration.end) {
        machine.report("memory is freed while it is registered");
      }
    }
  }
  const int device = found->second.device;
  (device == kHost ? machine.page_locked : machine.used[static_cast<std::size_t>(device)]) -=
      found->second.bytes;
  machine.forget(begin, end);
  machine.allocations.erase(found);
  return kCudaSuccess;
}

// Memory that was freed looks like memory that was never page-locked.
int copy(Machine& machine, void* to, const void* from, std::size_t bytes, void* stream) {
  const int device = machine.stream_of(stream).device;
  if (const int error = error_of_device(machine, device); error != 0) return remember(error);
  const auto planned = machine.knobs.copy_error.find(device);
  if (planned != machine.knobs.copy_error.end()) return remember(planned->second);
  for (const void* side : {static_cast<const void*>(to), from}) {
    const Allocation* memory = machine.find(reinterpret_cast<std::uintptr_t>(side), bytes);
    if (memory == nullptr && !machine.knobs.pageable_copies) {
      machine.report("a copy uses memory that is neither of a device nor page-locked");
      return kInvalidValue;
    }
    if (memory != nullptr && memory->device != kHost && memory->device != device) {
      machine.report("a copy uses memory of another device");
    }
  }
  auto item = std::make_shared<Item>();
  item->name = "a copy";
  item->run = [=] { std::memcpy(to, from, bytes); };
  item->polls_left = machine.knobs.polls_per_copy;
  machine.launch(stream, item, {{from, bytes}}, {{to, bytes}});
  return kCudaSuccess;
}

}  // namespace ddp::fake

using ddp::fake::Event;
using ddp::fake::Item;
using ddp::fake::Machine;
using ddp::fake::Position;
using ddp::fake::Stream;

extern "C" {

const char* cudaGetErrorString(int code) {
  if (code == 2) return "out of memory";
  if (code == 35) return "CUDA driver version is insufficient for CUDA runtime version";
  if (code == 700) return "an illegal memory access was encountered";
  if (code == 100) return "no CUDA-capable device is detected";
  if (code == 900) return "operation not permitted when stream is capturing";
  return "fake trouble";
}
int cudaRuntimeGetVersion(int* version) {
  *version = Machine::get().knobs.runtime_version;
  return 0;
}
int cudaDriverGetVersion(int* version) {
  *version = Machine::get().knobs.driver_version;
  return 0;
}
int cudaGetLastError() {
  return std::exchange(ddp::fake::last_error, 0);
}
int cudaGetDeviceCount(int* count) {
  const auto& knobs = Machine::get().knobs;
  *count = knobs.devices;
  if (knobs.driver_version < knobs.runtime_version) return ddp::fake::kInsufficientDriver;
  return knobs.devices == 0 ? ddp::fake::kNoDevice : 0;
}
int cudaSetDevice(int device) {
  if (device < 0 || device >= Machine::get().knobs.devices) return ddp::fake::kInvalidDevice;
  ddp::fake::current_device = device;
  return 0;
}
int cudaGetDevice(int* device) {
  *device = ddp::fake::current_device;
  return 0;
}
int cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", device + 1);
  return 0;
}
int cudaThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(ddp::fake::capture.mode, *mode);
  return 0;
}
int cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return 0;
}

int cudaStreamCreateWithPriority(void** handle, unsigned, int) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  auto stream = std::make_unique<Stream>(
      Stream{ddp::fake::current_device, machine.new_timeline(), {}, {}, false});
  *handle = stream.get();
  machine.streams[*handle] = std::move(stream);
  return 0;
}
int cudaStreamDestroy(void* handle) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const auto found = machine.streams.find(handle);
  if (found == machine.streams.end() || found->second->destroyed) {
    machine.report("a stream is destroyed that does not exist");
    return ddp::fake::kInvalidValue;
  }
  found->second->destroyed = true;  // its work continues
  machine.advance();
  return 0;
}
int cudaStreamQuery(void* handle) {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnsupportedInCapture;
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.advance();
  const Stream& stream = machine.stream_of(handle);
  if (!stream.items.empty()) return ddp::fake::remember(ddp::fake::kNotReady);
  machine.found_reached(stream.moment);
  ddp::fake::join(machine.known[static_cast<std::size_t>(stream.device)], stream.moment);
  return 0;
}
int cudaDeviceSynchronize() {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnsupportedInCapture;
  auto& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  const int device = ddp::fake::current_device;
  const auto busy = [](const Stream* stream) { return !stream->items.empty(); };
  for (;;) {
    machine.advance();
    if (const int error = ddp::fake::error_of_device(machine, device)) {
      return ddp::fake::remember(error);
    }
    const auto streams = machine.streams_of(device);
    if (std::none_of(streams.begin(), streams.end(), busy)) break;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
  for (const Stream* stream : machine.streams_of(device)) {
    machine.found_reached(stream->moment);
    ddp::fake::join(machine.known[static_cast<std::size_t>(device)], stream->moment);
  }
  return 0;
}
int cudaStreamWaitEvent(void* handle, void* event, unsigned) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (!machine.events.contains(event)) {
    machine.report("a stream waits for an event that does not exist");
    return ddp::fake::kInvalidValue;
  }
  const int error = ddp::fake::error_of_device(machine, ddp::fake::current_device);
  if (error != 0) return ddp::fake::remember(error);
  const auto position = static_cast<Event*>(event)->latest;
  if (!position) return 0;  // never recorded
  auto item = std::make_shared<Item>();
  item->name = "a wait for an event";
  item->awaits = position;
  Stream& stream = machine.stream_of(handle);
  ddp::fake::join(stream.moment, position->moment);
  machine.append(stream, item, machine.here());
  machine.advance();
  return 0;
}

int cudaEventCreateWithFlags(void** handle, unsigned flags) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  auto event = std::make_unique<Event>();
  event->timed = (flags & ddp::fake::kDisableTiming) == 0;
  *handle = event.get();
  machine.events[*handle] = std::move(event);
  return 0;
}
int cudaEventDestroy(void* handle) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (machine.events.erase(handle) == 0) {
    machine.report("an event is destroyed that does not exist");
    return ddp::fake::kInvalidValue;
  }
  return 0;
}
int cudaEventRecord(void* handle, void* on) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (!machine.events.contains(handle)) {
    machine.report("an event is recorded that does not exist");
    return ddp::fake::kInvalidValue;
  }
  auto item = std::make_shared<Item>();
  item->name = "an event";
  item->records = std::make_shared<Position>();
  Stream& stream = machine.stream_of(on);
  machine.append(stream, item, machine.here());
  item->records->moment = stream.moment;
  static_cast<Event*>(handle)->latest = item->records;
  machine.advance();
  return 0;
}
int cudaEventQuery(void* handle) {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnsupportedInCapture;
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.advance();
  if (!machine.events.contains(handle)) {
    machine.report("an event is queried that does not exist");
    return ddp::fake::kInvalidValue;
  }
  const int error = ddp::fake::error_of_device(machine, ddp::fake::current_device);
  if (error != 0) return ddp::fake::remember(error);
  const auto position = static_cast<Event*>(handle)->latest;
  if (!position) return 0;
  if (!position->reached) return ddp::fake::remember(ddp::fake::kNotReady);
  machine.found_reached(position->moment);
  return 0;
}
// Not ready unless both were found reached, although a GPU may know it by now.
int cudaEventElapsedTime(float* milliseconds, void* begin, void* end) {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnsupportedInCapture;
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (!machine.events.contains(begin) || !machine.events.contains(end)) {
    machine.report("the time between events that do not exist is asked for");
    return ddp::fake::kInvalidValue;
  }
  const auto& from = *static_cast<Event*>(begin);
  const auto& to = *static_cast<Event*>(end);
  if (!from.timed || !to.timed || !from.latest || !to.latest) {
    return ddp::fake::remember(ddp::fake::kInvalidHandle);
  }
  if (!from.latest->reached || !to.latest->reached) {
    return ddp::fake::remember(ddp::fake::kNotReady);
  }
  *milliseconds = static_cast<float>(to.latest->milliseconds - from.latest->milliseconds);
  return 0;
}

int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, void* stream) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return ddp::fake::copy(machine, to, from, bytes, stream);
}
int cudaMemsetAsync(void* memory, int value, std::size_t bytes, void* stream) {
  ddp::fake::launch(stream, "a fill", {}, {{memory, bytes}},
                    [=] { std::memset(memory, value, bytes); });
  return 0;
}
int cudaMalloc(void** memory, std::size_t bytes) {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnsupportedInCapture;
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return ddp::fake::allocate(machine, memory, bytes, ddp::fake::Owner::cuda);
}
int cudaFree(void* memory) {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnsupportedInCapture;
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return ddp::fake::release(machine, memory, ddp::fake::Owner::cuda);
}
int cudaMallocHost(void** memory, std::size_t bytes) {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnsupportedInCapture;
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return ddp::fake::allocate(machine, memory, bytes, ddp::fake::Owner::page_locked);
}
int cudaFreeHost(void* memory) {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnsupportedInCapture;
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return ddp::fake::release(machine, memory, ddp::fake::Owner::page_locked);
}

}  // extern "C"
