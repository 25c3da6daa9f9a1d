// SPDX-License-Identifier: Apache-2.0
// libtorch's view of the devices, streams and events. An event is one of the fake of CUDA.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <thread>

#include "tests/unit/fake_device/memory.h"
#include "tests/unit/fake_device/recording.h"
#include "tests/unit/fake_device/streams.h"

namespace ddp::fake_device {
namespace {

int index_or_current(const c10::Device& device) {
  if (device.has_index()) return device.index();
  int current = 0;
  check(calls().get_device(&current), "get the device");
  return current;
}

bool is_ready(int code) {
  if (code == cuda::kNotReady) {
    calls().take_last_error();
    return false;
  }
  check(code, "finish its work");
  return true;
}

constexpr const char* kEventOfCapture =
    "operation not permitted on an event last recorded in a capturing stream";

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return device(index_or_current(c10::Device(kType))); }
  void setDevice(c10::Device wanted) const override {
    if (wanted.has_index()) check(calls().set_device(wanted.index()), "set the device");
  }
  void uncheckedSetDevice(c10::Device wanted) const noexcept override {
    if (wanted.has_index()) calls().set_device(wanted.index());
  }
  c10::Device exchangeDevice(c10::Device wanted) const override {
    const auto before = getDevice();
    if (wanted != before) setDevice(wanted);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device of) const override {
    return current_stream(index_or_current(of));
  }
  c10::Stream getDefaultStream(c10::Device of) const override {
    return stream_number(index_or_current(of), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool high) const override {
    return stream_of_pool(index_or_current(of), high);
  }
  c10::Stream getNewStream(c10::Device of, int) const override {
    return new_stream(index_or_current(of));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = current_stream(stream.device_index());
    make_current(stream);
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return handle_of(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    if (const auto captured = recording_of(stream)) captured->refuse("ask for a stream");
    require_working(stream.device_index());
    const cuda::DeviceScope scope(calls(), stream.device_index());
    return is_ready(calls().stream_query(handle_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (const auto captured = recording_of(stream)) captured->refuse("synchronize a stream");
    wait_on_host(stream, "synchronize a stream");
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    if (const auto captured = recording_on(index_or_current({kType, index}))) {
      captured->refuse("synchronize a device");
    }
    count_host_wait("synchronize a device");
    for (const auto& stream : streams_in_use(index_or_current({kType, index}))) {
      drain(stream);
      queryStream(stream);
    }
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    require_working(stream.device_index());
    const cuda::DeviceScope scope(calls(), stream.device_index());
    if (*event == nullptr) {
      const bool timed = flag == c10::EventFlag::BACKEND_DEFAULT;  // as libtorch does for CUDA
      check(calls().event_create(event, timed ? cuda::kEventWithTiming : cuda::kEventWithoutTiming),
            "create an event");
    }
    const bool captured = recording_of(stream) != nullptr;
    note_event(*event, captured);
    if (captured) return;  // a place between recorded kernels
    check(calls().event_record(*event, handle_of(stream)), "record an event");
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const auto recording = recording_of(stream);
    if (recording && is_captured(event)) return;  // its own stream
    TORCH_CHECK(!is_captured(event), "the fake device cannot capture a second stream");
    if (recording) recording->refuse("wait for an event that is not of the capture");
    const cuda::DeviceScope scope(calls(), stream.device_index());
    check(calls().stream_wait_event(handle_of(stream), event, 0), "wait for an event");
  }
  bool queryEvent(void* event) const override {
    TORCH_CHECK(!is_captured(event), kEventOfCapture);
    return event == nullptr || is_ready(calls().event_query(event));
  }
  void synchronizeEvent(void* event) const override {
    count_host_wait("synchronize an event");
    while (!queryEvent(event)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    TORCH_CHECK(!is_captured(from) && !is_captured(to), kEventOfCapture);
    float milliseconds = 0;
    check(calls().event_elapsed(&milliseconds, from, to), "tell the time between two events");
    return milliseconds;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event == nullptr) return;
    note_event(event, false);
    calls().event_destroy(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_use(data, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace ddp::fake_device
