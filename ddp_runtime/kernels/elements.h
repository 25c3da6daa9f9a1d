// SPDX-License-Identifier: Apache-2.0
// Element types of the kernels, and access to several elements at once: four 32-bit or eight 16-bit
// elements are 16 bytes. All arithmetic is in float.
#pragma once

#include <bit>
#include <cstdint>

#include "ddp_runtime/kernels/host_device.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif
#ifndef __CUDA_ARCH__
#include <cstring>
#include <stdexcept>

#include "ddp_runtime/comm/half_precision.h"
#endif

namespace ddp::kernels {

#ifdef __CUDA_ARCH__
// std::bit_cast does not take CUDA's pairs, which have constructors.
template <class Pair>
__device__ inline std::uint32_t word_of(const Pair& pair) {
  std::uint32_t word;
  static_assert(sizeof(word) == sizeof(pair));
  memcpy(&word, &pair, sizeof(word));
  return word;
}
#endif

// The types say how the bits of an element and a float become each other, rounding to nearest even.
// A NaN stays a NaN; GPUs and CPUs may give it another sign and payload.
struct F32 {
  using Bits = float;
  SLURM_DDP_HOST_DEVICE static float to_float(Bits value) { return value; }
  SLURM_DDP_HOST_DEVICE static Bits from_float(float value) { return value; }
};

struct Bf16 {
  using Bits = std::uint16_t;
  SLURM_DDP_HOST_DEVICE static float to_float(Bits bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  SLURM_DDP_HOST_DEVICE static Bits from_float(float value) {
#ifdef __CUDA_ARCH__
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    return comm::float_to_bf16(value);
#endif
  }
  // Two elements as one word, the first in its lower half. On a GPU, that is one instruction.
  SLURM_DDP_HOST_DEVICE static std::uint32_t pair(float first, float second) {
#ifdef __CUDA_ARCH__
    return word_of(__floats2bfloat162_rn(first, second));
#else
    return from_float(first) | static_cast<std::uint32_t>(from_float(second)) << 16U;
#endif
  }
};

struct F16 {
  using Bits = std::uint16_t;
  SLURM_DDP_HOST_DEVICE static float to_float(Bits bits) {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(bits));
#else
    return comm::f16_to_float(bits);
#endif
  }
  SLURM_DDP_HOST_DEVICE static Bits from_float(float value) {
#ifdef __CUDA_ARCH__
    return __half_as_ushort(__float2half_rn(value));
#else
    return comm::float_to_f16(value);
#endif
  }
  SLURM_DDP_HOST_DEVICE static std::uint32_t pair(float first, float second) {
#ifdef __CUDA_ARCH__
    return word_of(__floats2half2_rn(first, second));
#else
    return from_float(first) | static_cast<std::uint32_t>(from_float(second)) << 16U;
#endif
  }
};

#ifdef __CUDA_ARCH__
// One instruction for all words: assigned as a structure, each word would be stored by its own. The
// names of the two also tell the compiler that the memory is the GPU's, which it cannot know of
// addresses from a table.
__device__ inline void load_words(const void* from, std::uint32_t (&words)[2]) {
  const uint2 v = __ldcg(static_cast<const uint2*>(from));
  words[0] = v.x;
  words[1] = v.y;
}
__device__ inline void load_words(const void* from, std::uint32_t (&words)[4]) {
  const uint4 v = __ldcg(static_cast<const uint4*>(from));
  words[0] = v.x;
  words[1] = v.y;
  words[2] = v.z;
  words[3] = v.w;
}
__device__ inline void store_words(void* to, const std::uint32_t (&words)[2]) {
  __stwb(static_cast<uint2*>(to), make_uint2(words[0], words[1]));
}
__device__ inline void store_words(void* to, const std::uint32_t (&words)[4]) {
  __stwb(static_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
}
#endif

// kCount elements as 32-bit words, aligned so that they are one access.
template <class Element, int kCount>
struct alignas(kCount * sizeof(typename Element::Bits)) Group {
  static constexpr int kWords = kCount * sizeof(typename Element::Bits) / sizeof(std::uint32_t);
  std::uint32_t words[kWords];

  SLURM_DDP_HOST_DEVICE float get(int i) const {
    if constexpr (sizeof(typename Element::Bits) == 4) {
      return std::bit_cast<float>(words[i]);
    } else {
      const std::uint32_t word = words[i / 2];
      return Element::to_float(static_cast<std::uint16_t>(i % 2 == 0 ? word : word >> 16U));
    }
  }
  SLURM_DDP_HOST_DEVICE void set(const float (&values)[kCount]) {
    for (int i = 0; i < kWords; ++i) {
      if constexpr (sizeof(typename Element::Bits) == 4) {
        words[i] = std::bit_cast<std::uint32_t>(values[i]);
      } else {
        words[i] = Element::pair(values[2 * i], values[2 * i + 1]);
      }
    }
  }
};

// Tests fail where a GPU would stop the kernel: at an access to an address that is not a multiple
// of the access's size.
template <class G>
SLURM_DDP_HOST_DEVICE G load_group(const void* from) {
#ifdef __CUDA_ARCH__
  G group;
  load_words(from, group.words);
  return group;
#else
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(G) != 0) {
    throw std::logic_error("a group of elements is read from an address that is not aligned");
  }
  G group;
  std::memcpy(&group, from, sizeof(G));
  return group;
#endif
}

template <class G>
SLURM_DDP_HOST_DEVICE void store_group(void* to, const G& group) {
#ifdef __CUDA_ARCH__
  store_words(to, group.words);
#else
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(G) != 0) {
    throw std::logic_error("a group of elements is written to an address that is not aligned");
  }
  std::memcpy(to, &group, sizeof(G));
#endif
}

// Elements that are accessed at once, if the widest of the types has `size` bytes: 16 bytes of it.
constexpr int elements_of_group(std::size_t size) {
  return static_cast<int>(16 / size);
}

SLURM_DDP_HOST_DEVICE inline std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace ddp::kernels
