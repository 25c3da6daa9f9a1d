// SPDX-License-Identifier: Apache-2.0
// Torch creates its random number generator on first use. This file makes that happen before there
// are ranks. The thread sanitizer does not see into torch, so it would report two simultaneous
// first uses as a race.
#include <ATen/CPUGeneratorImpl.h>

namespace ddp {
namespace {

[[maybe_unused]] const at::Generator& first_use = at::detail::getDefaultCPUGenerator();

}  // namespace
}  // namespace ddp
