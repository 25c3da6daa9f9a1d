// Torch's random numbers come from a generator that it makes when first asked. Here that is before
// there are ranks: to the thread sanitizer, which does not see into torch, two ranks that ask at
// once look like a race.
#include <ATen/CPUGeneratorImpl.h>

namespace ddp {
namespace {

[[maybe_unused]] const at::Generator& first_use = at::detail::getDefaultCPUGenerator();

}  // namespace
}  // namespace ddp
