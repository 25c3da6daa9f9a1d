// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/memory/whole_memory.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ddp {
namespace {

// One unit computes and one is gathered ahead.
constexpr std::size_t kKept = 2;

}  // namespace

torch::Tensor WholeMemory::take(std::int64_t bytes, torch::Device device) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->device() != device || it->numel() < bytes) continue;
    if (best == free_.end() || it->numel() < best->numel()) best = it;
  }
  if (best == free_.end()) {
    // What is too small now may be too small always.
    if (!free_.empty()) free_.erase(free_.begin());
    return torch::empty({bytes}, torch::TensorOptions(device).dtype(torch::kUInt8));
  }
  auto memory = std::move(*best);
  free_.erase(best);
  return memory;
}

void WholeMemory::give_back(torch::Tensor memory) {
  free_.push_back(std::move(memory));
  if (free_.size() <= kKept) return;
  free_.erase(std::ranges::min_element(
      free_, [](const auto& a, const auto& b) { return a.numel() < b.numel(); }));
}

}  // namespace ddp
