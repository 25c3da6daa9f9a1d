// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/generator_state.h"

#include <ATen/Context.h>

#include <mutex>

namespace ddp::train {
namespace {

at::Generator generator_of(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

}  // namespace

torch::Tensor generator_state(torch::Device device) {
  auto generator = generator_of(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(torch::Device device, const torch::Tensor& state) {
  auto generator = generator_of(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void seed_generator(torch::Device device, std::uint64_t seed) {
  auto generator = generator_of(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace ddp::train
