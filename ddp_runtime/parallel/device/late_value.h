// SPDX-License-Identifier: Apache-2.0
// A number that a device computes and the host reads later.
//
// Note [Late values]
// A GPU runs behind the program: the host only enqueues kernels. If the host needs a value of a
// step, such as the loss for a log, it waits until the GPU has computed it, and afterwards the GPU
// waits for the next kernels. So nothing in a step reads a value of the same step: it is copied to
// pinned memory behind the kernels that compute it, and read in the next step, when it has long
// been there.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>

namespace ddp {

// A small tensor of a device that the host reads later. Needs torch_compat::kSupportsDevices.
class LateTensor {
 public:
  // The values when the work on this thread's current stream has come to them.
  explicit LateTensor(const torch::Tensor& tensor);
  LateTensor(LateTensor&&) noexcept;
  LateTensor& operator=(LateTensor&&) noexcept;
  ~LateTensor();

  // Whether value() returns without waiting.
  bool ready() const;
  // A copy on the CPU, with the same shape and type. Waits for the device if necessary.
  const torch::Tensor& value() const;

 private:
  struct Copy;

  std::unique_ptr<Copy> copy_;
};

class LateValue {
 public:
  // Of a tensor with one element. On a CPU the value is read at once, on a device when the work on
  // this thread's current stream has come to it.
  explicit LateValue(const torch::Tensor& scalar);

  // Whether value() returns without waiting.
  bool ready() const { return !copy_ || copy_->ready(); }
  // Waits for the device if necessary.
  double value();

 private:
  std::optional<LateTensor> copy_;  // nullopt once value_ is known
  double value_ = 0;
};

}  // namespace ddp
