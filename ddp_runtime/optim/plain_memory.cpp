// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/plain_memory.h"

#include <ATen/TensorSubclassLikeUtils.h>

#include <algorithm>
#include <functional>

namespace ddp::optim {

bool is_plain(const torch::Tensor& tensor, torch::ScalarType type) {
  return tensor.defined() && tensor.layout() == torch::kStrided && tensor.device().is_cpu() &&
         tensor.scalar_type() == type && !at::isTensorSubclassLike(tensor) && !tensor.is_neg() &&
         !tensor._is_zerotensor() && !tensor.is_inference() &&
         tensor.is_non_overlapping_and_dense();
}

bool same_order(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  for (std::int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) > 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

void MemoryRanges::add(const torch::Tensor& tensor, bool written) {
  if (tensor.numel() == 0) return;
  const auto* begin = static_cast<const char*>(tensor.data_ptr());
  ranges_.push_back({begin, begin + tensor.nbytes(), written});
}

bool MemoryRanges::overlap() const {
  auto ranges = ranges_;
  std::ranges::sort(ranges, std::less{}, &Range::begin);
  // In order of their beginnings, a range overlaps an earlier one if it begins before its end.
  const char* end = nullptr;
  const char* written_end = nullptr;
  const std::less<> before;
  for (const auto& range : ranges) {
    if (before(range.begin, range.written ? end : written_end)) return true;
    end = std::max(end, range.end, before);
    if (range.written) written_end = std::max(written_end, range.end, before);
  }
  return false;
}

}  // namespace ddp::optim
