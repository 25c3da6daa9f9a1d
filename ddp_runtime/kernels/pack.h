// SPDX-License-Identifier: Apache-2.0
// pack: copies the gradients of a bucket into one flat array, scaled and converted, in one launch.
#pragma once

#include <cstdint>

#include "ddp_runtime/kernels/elements.h"
#include "ddp_runtime/kernels/host_device.h"
#include "ddp_runtime/kernels/tiles.h"

namespace ddp::kernels {

// One gradient. The kernel reads the table of pieces, so it is memory of the device, or page-locked
// memory of the host.
struct PackPiece {
  const void* from = nullptr;    // of the device, aligned to an element; not used if count is 0
  std::uint64_t to = 0;          // first element in the flat array
  std::uint64_t count = 0;       // elements
  std::uint64_t first_tile = 0;  // see number_tiles()
};

struct PackArguments {
  const PackPiece* pieces = nullptr;
  std::uint64_t count = 0;  // pieces
  std::uint64_t tiles = 0;
  void* to = nullptr;  // the flat array, aligned to an element
  float scale = 1;
};
static_assert(sizeof(PackPiece) == 32 && sizeof(PackArguments) == 40, "the same on both sides");

// Groups that a thread reads before it writes the first: more bytes under way at once.
inline constexpr int kPackBatch = 4;

template <class From, class To>
SLURM_DDP_HOST_DEVICE void pack_range(const typename From::Bits* from, typename To::Bits* to,
                                      std::uint64_t count, float scale, std::uint32_t thread) {
  constexpr std::size_t kWidest = sizeof(*from) > sizeof(*to) ? sizeof(*from) : sizeof(*to);
  constexpr int kGroup = elements_of_group(kWidest);
  constexpr std::uint64_t kStep = std::uint64_t{kPackBatch} * kThreads;
  using Source = Group<From, kGroup>;
  using Target = Group<To, kGroup>;
  const Split split =
      split_range(count, kGroup, elements_to_group(address_of(from), sizeof(*from), kGroup),
                  elements_to_group(address_of(to), sizeof(*to), kGroup));
  const auto one = [&](std::uint64_t i) {
    to[i] = To::from_float(From::to_float(from[i]) * scale);
  };
  for (std::uint64_t i = thread; i < split.head; i += kThreads) one(i);
  const auto* const first = from + split.head;
  auto* const target = to + split.head;
  for (std::uint64_t group = thread; group < split.groups; group += kStep) {
    Source sources[kPackBatch] = {};
    for (int k = 0; k < kPackBatch; ++k) {
      const std::uint64_t g = group + static_cast<std::uint64_t>(k) * kThreads;
      if (g < split.groups) sources[k] = load_group<Source>(first + g * kGroup);
    }
    for (int k = 0; k < kPackBatch; ++k) {
      const std::uint64_t g = group + static_cast<std::uint64_t>(k) * kThreads;
      if (g >= split.groups) break;
      float values[kGroup];
      for (int i = 0; i < kGroup; ++i) values[i] = sources[k].get(i) * scale;
      Target packed;
      packed.set(values);
      store_group(target + g * kGroup, packed);
    }
  }
  const std::uint64_t done = split.head + split.groups * kGroup;
  for (std::uint64_t i = done + thread; i < count; i += kThreads) one(i);
}

// The body of the kernel.
template <class From, class To>
SLURM_DDP_HOST_DEVICE void pack(const PackArguments& arguments, const Lane& lane) {
  auto* const flat = static_cast<typename To::Bits*>(arguments.to);
  for_each_tile(arguments.pieces, arguments.count, arguments.tiles, lane,
                [&](const PackPiece& piece, const TileRange& range) {
                  const auto* const from = static_cast<const typename From::Bits*>(piece.from);
                  pack_range<From, To>(from + range.first, flat + piece.to + range.first,
                                       range.count, arguments.scale, lane.thread);
                });
}

}  // namespace ddp::kernels
