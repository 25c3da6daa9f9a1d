// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, RFC 3720 appendix B.4), using the CPU's instruction where available.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp::ckpt {

// Returns the checksum of `bytes`, or, given the checksum `prefix` of preceding bytes, of both
// together: crc32c(b, crc32c(a)) == crc32c(a || b). The checksum of an empty sequence is 0.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t prefix = 0) noexcept;

// Returns the checksum of a || b, computed from the checksums of a and b in O(log length_b).
std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b,
                             std::uint64_t length_b) noexcept;

// Computes the same checksum without the CPU's instruction; public so that tests can compare the
// two.
std::uint32_t crc32c_software(std::span<const std::byte> bytes, std::uint32_t prefix = 0) noexcept;

// True if crc32c() uses the SSE4.2 instruction.
bool crc32c_has_hardware() noexcept;

}  // namespace ddp::ckpt
