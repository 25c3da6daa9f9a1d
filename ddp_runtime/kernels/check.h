// SPDX-License-Identifier: Apache-2.0
// check: the sum of squares of a reduced bucket, and whether all its elements are finite, in one
// pass over it.
//
// Note [Same bits]
// The result has the same bits in every run and on every GPU. Each thread adds the squares of its
// elements in ascending order, a block adds its threads' sums as a tree, and the block that ends
// last adds the sums of all blocks in the order of their numbers. The number of blocks depends on
// the number of elements only, not on the GPU. Only where groups begin depends on the address, so
// two buckets must be aligned alike; the arena aligns all to 4096 bytes.
//
// The sum is in double. The square of the largest float is 1e77, so no number of elements overflows
// it: it is finite if and only if all elements are.
#pragma once

#include <cstdint>

#include "ddp_runtime/kernels/elements.h"
#include "ddp_runtime/kernels/host_device.h"
#include "ddp_runtime/kernels/tiles.h"

namespace ddp::kernels {

// About four blocks for each multiprocessor of the largest GPUs so far.
inline constexpr std::uint64_t kMaxCheckBlocks = 512;
// Elements for which another block is worth its start.
inline constexpr std::uint64_t kCheckElementsPerBlock = std::uint64_t{kThreads} * 16;

constexpr std::uint64_t check_blocks(std::uint64_t elements) {
  const std::uint64_t wanted = elements / kCheckElementsPerBlock + 1;
  return wanted < kMaxCheckBlocks ? wanted : kMaxCheckBlocks;
}

// All memory is of the device.
struct CheckArguments {
  const void* data = nullptr;  // aligned to an element
  std::uint64_t count = 0;     // elements
  double* partials = nullptr;  // kMaxCheckBlocks, for the kernel's own use
  // Zero before the first launch. Each launch leaves zero. Launches that may run at the same time
  // need a ticket and partials of their own.
  std::uint32_t* ticket = nullptr;
  double* sum_of_squares = nullptr;  // the result; may be null
  // Set to 1 if an element is not finite, otherwise left alone, so that several buckets can share
  // it; may be null.
  float* found_inf = nullptr;
};
static_assert(sizeof(CheckArguments) == 48, "the same on both sides");

inline constexpr int kCheckBatch = 4;

SLURM_DDP_HOST_DEVICE inline double add_square(double sum, float value) {
  const double wide = value;
  return __builtin_fma(wide, wide, sum);
}

// The sum of one thread of the grid.
template <class Element>
SLURM_DDP_HOST_DEVICE double thread_sum(const CheckArguments& arguments, const Lane& lane) {
  constexpr int kGroup = elements_of_group(sizeof(typename Element::Bits));
  using Elements = Group<Element, kGroup>;
  const auto* const data = static_cast<const typename Element::Bits*>(arguments.data);
  const Split split = split_range(arguments.count, kGroup,
                                  elements_to_group(address_of(data), sizeof(*data), kGroup));
  const std::uint64_t step = lane.blocks * kThreads;
  const std::uint64_t me = lane.block * kThreads + lane.thread;
  double sum = 0;
  for (std::uint64_t i = me; i < split.head; i += step) {
    sum = add_square(sum, Element::to_float(data[i]));
  }
  const auto* const first = data + split.head;
  for (std::uint64_t group = me; group < split.groups; group += kCheckBatch * step) {
    Elements batch[kCheckBatch] = {};
    for (int k = 0; k < kCheckBatch; ++k) {
      const std::uint64_t g = group + static_cast<std::uint64_t>(k) * step;
      if (g < split.groups) batch[k] = load_group<Elements>(first + g * kGroup);
    }
    for (int k = 0; k < kCheckBatch; ++k) {
      if (group + static_cast<std::uint64_t>(k) * step >= split.groups) break;
      for (int i = 0; i < kGroup; ++i) sum = add_square(sum, batch[k].get(i));
    }
  }
  const std::uint64_t done = split.head + split.groups * kGroup;
  for (std::uint64_t i = done + me; i < arguments.count; i += step) {
    sum = add_square(sum, Element::to_float(data[i]));
  }
  return sum;
}

// One step of the tree: `half` is kThreads / 2 in the first, then half of it, down to 1. All
// threads of the block end a step before the next begins. The sum is then sums[0].
SLURM_DDP_HOST_DEVICE inline void tree_step(double* sums, std::uint32_t half,
                                            std::uint32_t thread) {
  if (thread < half) sums[thread] += sums[thread + half];
}

// What one thread adds of the blocks' sums.
SLURM_DDP_HOST_DEVICE inline double sum_of_partials(const double* partials, std::uint64_t blocks,
                                                    std::uint32_t thread) {
  double sum = 0;
  for (std::uint64_t i = thread; i < blocks; i += kThreads) {
#ifdef __CUDA_ARCH__
    sum += __ldcg(partials + i);  // other multiprocessors wrote them: not from this one's cache
#else
    sum += partials[i];
#endif
  }
  return sum;
}

SLURM_DDP_HOST_DEVICE inline void write_result(const CheckArguments& arguments, double sum) {
  if (arguments.sum_of_squares != nullptr) *arguments.sum_of_squares = sum;
  // The difference is NaN for a NaN and for infinities.
  if (arguments.found_inf != nullptr && sum - sum != 0) *arguments.found_inf = 1;
}

}  // namespace ddp::kernels
