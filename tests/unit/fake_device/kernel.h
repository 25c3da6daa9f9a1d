// SPDX-License-Identifier: Apache-2.0
// One operator on the fake device; see Note [Operators of the fake device]. Internal to the fake
// device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/fake_device/fake_device.h"
#include "tests/unit/fake_device/recording.h"

namespace ddp::fake_device {

class Kernel {
 public:
  // For the current stream of the device, whose earlier work the constructor waits for, unless it
  // is captured. Throws c10::Error if the device is broken.
  Kernel(std::string name, const c10::Device& device);

  // The same memory as a tensor of the CPU. Tensors of the CPU are returned as they are.
  at::Tensor reads(const at::Tensor& tensor);
  at::Tensor writes(const at::Tensor& tensor);
  // A tensor of the device with the values of a result, undefined if `result` is.
  at::Tensor keep(const at::Tensor& result);
  // Puts the kernel on the stream. Tensors of writes() that the operator has resized get their new
  // size and memory first. In a capture, `make_again` then makes what a replay does: the same on
  // the memory of real_memory(). An operator without it cannot be captured.
  using Again = std::function<void()>;
  // Otherwise `run` is called when the stream comes to the kernel.
  void launch(const std::function<Again()>& make_again = {}, const std::function<void()>& run = {});
  bool is_captured() const { return recording_ != nullptr; }
  // After launch(), if the program needs a value on the host.
  void wait_on_host();

  // The memory of a tensor in a replay, as a tensor of the CPU that does not keep it alive. Tensors
  // of the CPU are returned as they are: those that are not page-locked must be copied.
  static at::Tensor real_memory(const at::Tensor& tensor);

  const c10::Stream& stream() const { return stream_; }

 private:
  struct Written {
    at::Tensor device;
    at::Tensor host;
  };
  at::Tensor host_view_of(const at::Tensor& tensor, bool writes);
  void resize_like_host(const Written& written);

  std::string name_;
  c10::DeviceGuard guard_;
  c10::Stream stream_;
  std::vector<fake::Range> reads_;
  std::vector<fake::Range> writes_;
  std::list<Written> written_;
  std::shared_ptr<Recording> recording_;  // null unless the stream is captured
};

}  // namespace ddp::fake_device
