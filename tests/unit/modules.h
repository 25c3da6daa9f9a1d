// SPDX-License-Identifier: Apache-2.0
// Modules in tests whose ranks are threads: made alike by all ranks, and copies of their values.
#pragma once

#include <torch/torch.h>

#include <map>
#include <mutex>
#include <string>

#include "tests/unit/test_device.h"

namespace ddp::test {

inline std::mutex& mutex_of_seeds() {
  static std::mutex mutex;
  return mutex;
}

// Seeds under a lock, because all threads share the random number generator. Moves a module to the
// device of this test.
template <class Make>
auto seeded(const Make& make) {
  const std::lock_guard lock(mutex_of_seeds());
  torch::manual_seed(5);
  auto made = make();
  if constexpr (requires { made->parameters(); }) move_to_test_device(*made);
  return made;
}

using Values = std::map<std::string, torch::Tensor>;

// Copies of the parameters on the CPU by name.
inline Values values_of(const torch::nn::Module& module) {
  Values values;
  for (const auto& p : module.named_parameters())
    values[p.key()] = p.value().detach().cpu().clone();
  return values;
}

// The same with the buffers.
inline Values state_of(const torch::nn::Module& module) {
  auto values = values_of(module);
  for (const auto& b : module.named_buffers()) values[b.key()] = b.value().cpu().clone();
  return values;
}

inline bool same_bits(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() || !torch::equal(value, other->second)) return false;
  }
  return true;
}

}  // namespace ddp::test
