// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fake_device/streams.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>

#include "tests/unit/comm/fake_gpu/machine.h"

namespace ddp::fake_device {
namespace {

constexpr auto kDrainLimit = std::chrono::minutes(1);
constexpr auto kLastTensorsLimit = std::chrono::seconds(20);
constexpr c10::StreamId kStreamsOfPool = 4;  // of each priority
constexpr int kHighPriority = -5;

// Streams are numbered by device. 0 is the default stream, the next ones are the pools of low and
// high priority, and others are made on request.
struct Streams {
  std::mutex mutex;
  std::map<std::pair<int, c10::StreamId>, void*> handles;
  std::array<c10::StreamId, kDevices> next_new = {};
  std::atomic<unsigned> turn{0};
};

Streams& streams() {
  static Streams all;
  return all;
}

struct HostWaits {
  std::mutex mutex;
  std::vector<std::string> names;
};

HostWaits& waits() {
  static HostWaits all;
  return all;
}

std::atomic<int> generations{0};
std::atomic<int> launches_so_far{0};

std::size_t index_of(const c10::Device& device) {
  return static_cast<std::size_t>(device.index());
}

// By device. Numbers, not handles, because threads of libtorch live longer than a reset.
thread_local std::array<c10::StreamId, kDevices> current_streams = {};

bool has_high_priority(c10::StreamId id) {
  return id > kStreamsOfPool && id <= 2 * kStreamsOfPool;
}

// Ready, or broken.
bool has_run(const c10::Stream& stream) {
  void* handle = handle_of(stream);
  auto& machine = fake::Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.advance();
  return machine.broken.contains(stream.device_index()) || machine.stream_of(handle).items.empty();
}

// The threads on which libtorch runs backward drop their last tensors after backward() has
// returned.
void wait_for_last_tensors() {
  const auto limit = std::chrono::steady_clock::now() + kLastTensorsLimit;
  while (fake::leaks().find("allocation") != std::string::npos) {
    if (std::chrono::steady_clock::now() > limit) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    release_memory(true);
  }
}

}  // namespace

const cuda::Runtime& calls() {
  static const cuda::Runtime table = cuda::load_runtime(SLURM_DDP_FAKE_GPU);
  return table;
}

void check(int code, const char* what) {
  TORCH_CHECK(code == cuda::kSuccess, "the fake GPU cannot ", what, ": ",
              calls().error_string(code));
}

void require_working(int device_index) {
  auto& machine = fake::Machine::get();
  int error = 0;
  {
    const std::lock_guard lock(machine.mutex);
    const auto broken = machine.broken.find(device_index);
    if (broken != machine.broken.end()) error = broken->second;
  }
  check(error, "run a kernel");
}

void drain(const c10::Stream& stream) {
  const cuda::DeviceScope scope(calls(), stream.device_index());
  const auto limit = std::chrono::steady_clock::now() + kDrainLimit;
  while (!has_run(stream)) {
    TORCH_CHECK(std::chrono::steady_clock::now() < limit, "stream ", stream.id(), " of device ",
                stream.device_index(), " has stood still for a minute");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  require_working(stream.device_index());
}

void count_host_wait(const std::string& name) {
  const std::lock_guard lock(waits().mutex);
  waits().names.push_back(name);
}

void count_launch() {
  ++launches_so_far;
}

void wait_on_host(const c10::Stream& stream, const std::string& name) {
  count_host_wait(name);
  drain(stream);
  const cuda::DeviceScope scope(calls(), stream.device_index());
  check(calls().stream_query(handle_of(stream)), "wait for a stream");
}

void launch(const c10::Stream& stream, const std::string& name,
            const std::vector<fake::Range>& reads, const std::vector<fake::Range>& writes,
            const std::function<void()>& run) {
  const cuda::DeviceScope scope(calls(), stream.device_index());
  fake::launch(handle_of(stream), name, reads, writes, run);
}

void reuse(const c10::Stream& stream, const fake::Range& range) {
  const cuda::DeviceScope scope(calls(), stream.device_index());
  fake::reuse(handle_of(stream), range);
}

bool in_use(const fake::Range& range) {
  auto& machine = fake::Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.advance();
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data);
  const auto uses = [&](const fake::Stream& stream) {
    for (const auto& item : stream.items) {
      for (const auto& used : item->touches) {
        const auto at = reinterpret_cast<std::uintptr_t>(used.data);
        if (at < begin + range.bytes && begin < at + used.bytes) return true;
      }
    }
    return false;
  };
  for (const auto& stream : machine.defaults) {
    if (uses(*stream)) return true;
  }
  for (const auto& [handle, stream] : machine.streams) {
    if (uses(*stream)) return true;
  }
  return false;
}

int generation() {
  return generations;
}

void forget_streams(bool destroys) {
  const std::lock_guard lock(streams().mutex);
  for (const auto& [number, handle] : streams().handles) {
    if (destroys) calls().stream_destroy(handle);
  }
  streams().handles.clear();
  streams().next_new = {};
}

void reset(const fake::Knobs& knobs) {
  TORCH_CHECK(knobs.devices == kDevices, "the fake device has ", kDevices, " devices");
  forget_streams(false);
  release_memory(false);
  ++generations;
  fake::reset(knobs);
  forget_host_waits();
  launches_so_far = 0;
}

int launches() {
  return launches_so_far;
}

void release() {
  release_memory(true);
  wait_for_last_tensors();
  forget_streams(true);
}

std::vector<std::string> host_wait_names() {
  const std::lock_guard lock(waits().mutex);
  return waits().names;
}

int host_waits() {
  return static_cast<int>(host_wait_names().size());
}

void forget_host_waits() {
  const std::lock_guard lock(waits().mutex);
  waits().names.clear();
}

void* handle_of(const c10::Stream& stream) {
  if (stream.id() == 0) return nullptr;
  const std::lock_guard lock(streams().mutex);
  void*& handle = streams().handles[{stream.device_index(), stream.id()}];
  if (handle == nullptr) {
    const cuda::DeviceScope scope(calls(), stream.device_index());
    calls().stream_create(&handle, cuda::kNonBlockingStream,
                          has_high_priority(stream.id()) ? kHighPriority : 0);
  }
  return handle;
}

c10::Stream stream_number(int device_index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device(device_index), id);
}

c10::Stream stream_of_pool(int device_index, bool high) {
  const auto turn = static_cast<c10::StreamId>(streams().turn++ % kStreamsOfPool);
  return stream_number(device_index, 1 + turn + (high ? kStreamsOfPool : 0));
}

c10::Stream new_stream(int device_index) {
  const std::lock_guard lock(streams().mutex);
  auto& next = streams().next_new.at(static_cast<std::size_t>(device_index));
  return stream_number(device_index, 1 + 2 * kStreamsOfPool + next++);
}

std::vector<c10::Stream> streams_in_use(int device_index) {
  std::vector<c10::Stream> used = {stream_number(device_index, 0)};
  const std::lock_guard lock(streams().mutex);
  for (const auto& [number, handle] : streams().handles) {
    if (number.first == device_index) used.push_back(stream_number(device_index, number.second));
  }
  return used;
}

void make_current(const c10::Stream& stream) {
  current_streams.at(index_of(stream.device())) = stream.id();
}

c10::Stream current_stream(int device_index) {
  return stream_number(device_index, current_streams.at(static_cast<std::size_t>(device_index)));
}

}  // namespace ddp::fake_device
