// SPDX-License-Identifier: Apache-2.0
// Torch creates its random number generator on first use. Do that here, before there are ranks: to
// the thread sanitizer, which does not see into torch, two ranks that use it first at the same time
// look like a race.
#include <ATen/CPUGeneratorImpl.h>

namespace ddp {
namespace {

[[maybe_unused]] const at::Generator& first_use = at::detail::getDefaultCPUGenerator();

}  // namespace
}  // namespace ddp
