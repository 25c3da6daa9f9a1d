// SPDX-License-Identifier: Apache-2.0
// Stub of a header that c10d/reducer.hpp includes and that Debian's libtorch-dev does not install.
// It declares two names of distributed autograd, which a data-parallel step never uses. It is on
// the include path only if the real header is missing.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch::distributed::autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(at::Tensor&)>;
};

using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
