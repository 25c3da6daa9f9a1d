// SPDX-License-Identifier: Apache-2.0
// Errors of libtorch on a GPU that the user can do something about, in words that say what.
#pragma once

#include <c10/util/Exception.h>

namespace ddp::train {

// Throws RuntimeError with libtorch's numbers and a remedy if a GPU is out of memory, and
// UsageError if libtorch has no code for this kind of GPU. Returns after any other error.
void throw_with_gpu_advice(const c10::Error& error);

}  // namespace ddp::train
