// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/memory/device_memory.h"

#include <algorithm>

#include "ddp_runtime/comm/device/device_memory.h"
#include "ddp_runtime/torch_compat.h"

#if SLURM_DDP_TORCH_2_11
#include <c10/core/CachingDeviceAllocator.h>
#endif

namespace ddp::train {
namespace {

#if SLURM_DDP_TORCH_2_11

// Null before the first use of the device, and if its allocator does not count.
c10::DeviceAllocator* counting_allocator(torch::Device device) {
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  return allocator != nullptr && allocator->initialized() ? allocator : nullptr;
}

std::optional<c10::CachingAllocator::Stat> given_out(torch::Device device) {
  auto* const allocator = counting_allocator(device);
  if (allocator == nullptr) return std::nullopt;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator->getDeviceStats(device.index()).allocated_bytes[kAll];
}

void reset_peak(torch::Device device) {
  if (auto* const allocator = counting_allocator(device)) allocator->resetPeakStats(device.index());
}

#else

struct Unknown {
  std::int64_t current = 0;
  std::int64_t peak = 0;
};

std::optional<Unknown> given_out(torch::Device) {
  return std::nullopt;
}

void reset_peak(torch::Device) {}

#endif

std::int64_t of_group(const comm::Group& group) {
  return static_cast<std::int64_t>(comm::device_memory_of(group));
}

}  // namespace

DeviceMemory::DeviceMemory(const comm::Group& group, torch::Device device, std::int64_t model_bytes)
    : group_(group), device_(device) {
  if (const auto now = given_out(device)) before_ = now->current + of_group(group) - model_bytes;
}

void DeviceMemory::begin() {
  reset_peak(device_);
  has_begun_ = true;
}

std::optional<std::int64_t> DeviceMemory::peak() const {
  const auto now = given_out(device_);
  if (!before_ || !has_begun_ || !now) return std::nullopt;
  return std::max<std::int64_t>(now->peak + of_group(group_) - *before_, 0);
}

}  // namespace ddp::train
