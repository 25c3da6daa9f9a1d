// SPDX-License-Identifier: Apache-2.0
// Arrays for tests of kernels: random values at any offset of an aligned allocation, with poisoned
// elements around them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "ddp_runtime/kernels/elements.h"

namespace ddp::kernels::test {

inline constexpr unsigned char kPoison = 0xa5;

template <class Element>
class Array {
 public:
  using Bits = typename Element::Bits;

  // `count` elements, the first of them `offset` elements after an address that is a multiple of
  // kAlignment bytes.
  explicit Array(std::size_t count, std::size_t offset = 0)
      : count_(count), first_(kAlignment + offset * sizeof(Bits)) {
    size_ = first_ + count * sizeof(Bits) + kAlignment;
    bytes_.resize(size_ + kAlignment, kPoison);
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
    begin_ = (begin + kAlignment - 1) / kAlignment * kAlignment - begin;
  }
  // Not copied: the offset of a copy would be another.
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  Array(Array&&) = default;

  Bits* data() { return reinterpret_cast<Bits*>(bytes_.data() + begin_ + first_); }
  const Bits* data() const {
    return reinterpret_cast<const Bits*>(bytes_.data() + begin_ + first_);
  }
  std::size_t size() const { return count_; }
  float get(std::size_t i) const { return Element::to_float(data()[i]); }
  void set(std::size_t i, float value) { data()[i] = Element::from_float(value); }
  void randomize(unsigned seed, float size = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> values(0, size);
    for (std::size_t i = 0; i < count_; ++i) set(i, values(random));
  }
  // The elements and the poison around them, from an aligned address.
  std::span<unsigned char> whole() { return {bytes_.data() + begin_, size_}; }
  std::span<const unsigned char> whole() const { return {bytes_.data() + begin_, size_}; }
  // Where the elements begin in it.
  std::size_t first_byte() const { return first_; }
  // Whether the bytes before and after the elements were left alone.
  bool guards_intact() const {
    const auto all = whole();
    for (std::size_t i = 0; i < size_; ++i) {
      if ((i < first_ || i >= first_ + count_ * sizeof(Bits)) && all[i] != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::size_t count_;
  std::size_t first_;
  std::size_t size_ = 0;
  std::size_t begin_ = 0;  // of the aligned part
  std::vector<unsigned char> bytes_;
};

// Bitwise equal, or both NaN.
template <class Element>
bool same(typename Element::Bits a, typename Element::Bits b) {
  if (std::isnan(Element::to_float(a))) return std::isnan(Element::to_float(b));
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

}  // namespace ddp::kernels::test
