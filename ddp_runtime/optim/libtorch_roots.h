// SPDX-License-Identifier: Apache-2.0
// libtorch's own square roots, for UpdateRules::square_roots. Its wheels take them from MKL.
#pragma once

#include <cstddef>

namespace ddp::optim {

// Writes the roots that torch::sqrt() gives. Thread-safe. The arrays must not overlap.
void libtorch_roots(const float* values, float* roots, std::size_t count);

}  // namespace ddp::optim
