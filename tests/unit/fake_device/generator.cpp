// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fake_device/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <utility>
#include <vector>

#include "tests/unit/fake_device/fake_device.h"
#include "tests/unit/fake_device/recording.h"

namespace ddp::fake_device {
namespace {

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  DeviceGenerator(int index, at::Generator host)
      : GeneratorImpl(fake_device::device(index),
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  const at::Generator& host() const { return host_; }
  void set_current_seed(std::uint64_t seed) override { host_.set_current_seed(seed); }
  void set_offset(std::uint64_t offset) override { host_.set_offset(offset); }
  std::uint64_t get_offset() const override { return host_.get_offset(); }
  std::uint64_t current_seed() const override { return host_.current_seed(); }
  std::uint64_t seed() override { return host_.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    require_no_capture();
    host_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    require_no_capture();
    return host_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  // During a capture, a generator has no state that the host knows.
  void require_no_capture() const {
    const auto captured = recording_on(device().index());
    if (captured) captured->refuse("read or write the state of its random numbers");
  }
  DeviceGenerator* clone_impl() const override {
    return new DeviceGenerator(device().index(), host_.clone());
  }
  at::Generator host_;
};

}  // namespace

at::Generator new_generator(int device_index) {
  return at::make_generator<DeviceGenerator>(device_index, at::detail::createCPUGenerator());
}

const at::Generator& default_generator(int device_index) {
  static const std::vector<at::Generator> all = [] {
    std::vector<at::Generator> generators;
    for (int i = 0; i < kDevices; ++i) generators.push_back(new_generator(i));
    return generators;
  }();
  return all.at(static_cast<std::size_t>(device_index < 0 ? 0 : device_index));
}

at::Generator host_generator(const at::Generator& generator) {
  if (generator.device().type() != kType) return generator;
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->host();
}

at::Generator host_generator(int device_index) {
  return host_generator(default_generator(device_index));
}

}  // namespace ddp::fake_device
