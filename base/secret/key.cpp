// SPDX-License-Identifier: Apache-2.0
#include "base/secret/key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <charconv>

#include "base/errors.h"

namespace ddp {
namespace {

void fill_randomly(void* memory, std::size_t bytes) {
  // getrandom(2) returns up to 256 bytes completely, even if a signal arrives.
  if (getrandom(memory, bytes, 0) != static_cast<ssize_t>(bytes)) {
    throw RuntimeError("the kernel provided no random numbers for a key");
  }
}

}  // namespace

void ignore_openssl_settings() noexcept {
  OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
}

Key random_key() {
  Key key{};
  fill_randomly(key.data(), key.size());
  return key;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  fill_randomly(&number, sizeof number);
  return number;
}

Key hmac_sha256(std::span<const std::byte> key, std::string_view message) {
  Key result{};
  unsigned int length = 0;
  const auto* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                          reinterpret_cast<unsigned char*>(result.data()), &length);
  if (made == nullptr || length != result.size()) {
    throw RuntimeError("OpenSSL cannot compute HMAC-SHA256");
  }
  return result;
}

bool equal_in_constant_time(std::string_view one, std::string_view other) noexcept {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

std::string hex_of(const Key& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : key) {
    text.push_back(kDigits[std::to_integer<std::size_t>(byte >> 4)]);
    text.push_back(kDigits[std::to_integer<std::size_t>(byte & std::byte{15})]);
  }
  return text;
}

std::optional<Key> key_from_hex(std::string_view text) noexcept {
  Key key{};
  if (text.size() != 2 * key.size()) return std::nullopt;
  for (std::size_t i = 0; i < key.size(); ++i) {
    std::uint8_t value = 0;
    const char* first = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(first, first + 2, value, 16);
    if (error != std::errc() || end != first + 2) return std::nullopt;
    key[i] = std::byte{value};
  }
  return key;
}

}  // namespace ddp
