// SPDX-License-Identifier: Apache-2.0
// A byte pattern that sender and receiver both compute, so that the receiver can verify the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp::check {

// Word number `index` of the pattern of `seed`: all words are different and look random.
std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t index) noexcept;

// Fills `data` with words 0, 1, .. of the pattern, and a remainder of less than a word with part of
// the next word.
void fill_pattern(std::span<std::byte> data, std::uint64_t seed) noexcept;

// The number of bytes that differ from the pattern.
std::int64_t count_wrong(std::span<const std::byte> data, std::uint64_t seed) noexcept;

}  // namespace ddp::check
