// SPDX-License-Identifier: Apache-2.0
// Bytes known to both sender and receiver, so that the receiver can verify what arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp::check {

// Word number `index` of the pattern of `seed`: all words are different and look random.
std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t index) noexcept;

// Fills with words 0, 1, .. of the pattern; a remainder of less than a word is filled too.
void fill_pattern(std::span<std::byte> data, std::uint64_t seed) noexcept;

// How many bytes differ from the pattern.
std::int64_t count_wrong(std::span<const std::byte> data, std::uint64_t seed) noexcept;

}  // namespace ddp::check
