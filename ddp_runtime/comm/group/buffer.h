// SPDX-License-Identifier: Apache-2.0
// Typed memory that a collective reads and writes. A Buffer does not own its memory. The caller
// must keep the memory valid and must not touch it until the Work of the collective is done; for
// device memory, a stream that has waited for the Work may touch it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ddp_runtime/comm/group/element_type.h"
#include "ddp_runtime/comm/group/memory.h"

namespace ddp::comm {

struct Buffer {
  std::byte* data = nullptr;
  std::size_t count = 0;  // elements, not bytes
  ElementType type = ElementType::u8;
  Memory memory = Memory::host;
  // The stream on which the caller writes and reads device memory. A collective begins after the
  // work that is on this stream when it is called. Unused for host memory.
  DeviceStream stream = nullptr;

  std::size_t bytes() const noexcept { return count * size_of(type); }
  std::span<std::byte> span() const noexcept { return {data, bytes()}; }
  // Elements [first, first + n) of this buffer.
  Buffer slice(std::size_t first, std::size_t n) const noexcept {
    Buffer part = *this;
    part.data += first * size_of(type);
    part.count = n;
    return part;
  }
};

template <class T>
constexpr ElementType element_type_of() noexcept {
  if constexpr (std::is_same_v<T, float>) return ElementType::f32;
  if constexpr (std::is_same_v<T, double>) return ElementType::f64;
  if constexpr (std::is_same_v<T, std::int8_t>) return ElementType::i8;
  if constexpr (std::is_same_v<T, std::int16_t>) return ElementType::i16;
  if constexpr (std::is_same_v<T, std::int32_t>) return ElementType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return ElementType::i64;
  if constexpr (sizeof(T) == 1 && !std::is_same_v<T, std::int8_t>) return ElementType::u8;
}

template <class T>
Buffer buffer_of(std::span<T> values) noexcept {
  return {reinterpret_cast<std::byte*>(values.data()), values.size(), element_type_of<T>()};
}

template <class T>
Buffer buffer_of(T& value) noexcept requires std::is_arithmetic_v<T> {
  return {reinterpret_cast<std::byte*>(&value), 1, element_type_of<T>()};
}

}  // namespace ddp::comm
