// SPDX-License-Identifier: Apache-2.0
// 256-bit keys and HMACs, based on OpenSSL and random numbers from the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp {

inline constexpr std::size_t kKeyBytes = 32;
using Key = std::array<std::byte, kKeyBytes>;

// For a static program, before the first HMAC: OpenSSL would read its settings, which may name
// libraries to load, and these are not made for the program's own C library.
void ignore_openssl_settings() noexcept;

// Throws RuntimeError if the kernel provides no random numbers.
Key random_key();
std::uint64_t random_number();

// HMAC-SHA256 (RFC 2104, FIPS 180-4). Throws RuntimeError if OpenSSL reports an error.
Key hmac_sha256(std::span<const std::byte> key, std::string_view message);

// The run time does not depend on the position of a difference. The lengths are not secret.
bool equal_in_constant_time(std::string_view one, std::string_view other) noexcept;

// Converts a key to 64 lowercase hexadecimal digits and back. Returns nullopt for any other text.
std::string hex_of(const Key& key);
std::optional<Key> key_from_hex(std::string_view text) noexcept;

}  // namespace ddp
