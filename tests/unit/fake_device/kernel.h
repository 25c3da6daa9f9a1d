// SPDX-License-Identifier: Apache-2.0
// One operator on the fake device; see Note [Operators of the fake device]. Internal to the fake
// device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "tests/unit/fake_device/fake_device.h"

namespace ddp::fake_device {

class Kernel {
 public:
  // For the current stream of the device, whose earlier work the constructor waits for. Throws
  // c10::Error if the device is broken.
  Kernel(std::string name, const c10::Device& device);

  // The same memory as a tensor of the CPU. Tensors of the CPU are returned as they are.
  at::Tensor reads(const at::Tensor& tensor);
  at::Tensor writes(const at::Tensor& tensor);
  // A tensor of the device with the values of a result, undefined if `result` is.
  at::Tensor keep(const at::Tensor& result);
  // Puts the kernel on the stream. Tensors of writes() that the operator has resized get their new
  // size and memory first. `run` is called when the stream comes to the kernel.
  void launch(const std::function<void()>& run = {});
  // After launch(), if the program needs a value on the host.
  void wait_on_host();

  const c10::Stream& stream() const { return stream_; }

 private:
  struct Written {
    at::Tensor device;
    at::Tensor host;
  };
  void resize_like_host(const Written& written);

  std::string name_;
  c10::DeviceGuard guard_;
  c10::Stream stream_;
  std::vector<fake::Range> reads_;
  std::vector<fake::Range> writes_;
  std::list<Written> written_;
};

}  // namespace ddp::fake_device
