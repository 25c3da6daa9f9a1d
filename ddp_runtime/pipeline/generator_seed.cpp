// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/generator_seed.h"

#include <ATen/Context.h>

#include <mutex>

namespace ddp::pipeline {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mixed(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace

std::uint64_t forward_seed(std::uint64_t seed, std::int64_t step, int stage,
                           std::int64_t micro_batch) noexcept {
  const auto by_step = mixed(seed ^ mixed(static_cast<std::uint64_t>(step)));
  const auto by_stage = mixed(by_step ^ mixed(static_cast<std::uint64_t>(stage)));
  return mixed(by_stage ^ mixed(static_cast<std::uint64_t>(micro_batch)));
}

SeededGenerators::SeededGenerators(std::uint64_t seed, torch::Device device)
    : devices_{torch::kCPU} {
  if (!device.is_cpu()) devices_.push_back(device);
  for (const auto& each : devices_) {
    auto generator = at::globalContext().defaultGenerator(each);
    const std::lock_guard lock(generator.mutex());
    before_.push_back(generator.get_state());
    generator.set_current_seed(seed);
  }
}

SeededGenerators::~SeededGenerators() {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    auto generator = at::globalContext().defaultGenerator(devices_[i]);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(before_[i]);
  }
}

}  // namespace ddp::pipeline
