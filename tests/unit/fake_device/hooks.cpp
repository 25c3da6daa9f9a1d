// SPDX-License-Identifier: Apache-2.0
// What libtorch asks a device of the kind PrivateUse1.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/fake_device/generator.h"
#include "tests/unit/fake_device/memory.h"
#include "tests/unit/fake_device/streams.h"

namespace ddp::fake_device {
namespace {

int current_index() {
  int index = 0;
  check(calls().get_device(&index), "get the device");
  return index;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_index());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    check(calls().set_device(index), "set the device");
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = getCurrentDevice();
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index < 0 ? current_index() : index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return new_generator(index < 0 ? current_index() : index);
  }
  c10::Device getDeviceFromPtr(void* data) const override { return device(device_of(data)); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    auto memory = device_allocator()->allocate(bytes);
    std::memcpy(memory.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(memory));
    storage.set_nbytes(bytes);
  }
};

const bool registered = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::register_privateuse1_backend("fakegpu");
  return true;
}();

}  // namespace
}  // namespace ddp::fake_device
