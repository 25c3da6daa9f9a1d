// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state_array.h"

#include <c10/util/accumulate.h>

namespace ddp::train {

at::IntArrayRef StateArray::sizes() const {
  return division ? at::IntArrayRef(division->sizes) : tensor.sizes();
}

std::uint64_t StateArray::bytes() const {
  return static_cast<std::uint64_t>(c10::multiply_integers(sizes())) * tensor.element_size();
}

}  // namespace ddp::train
