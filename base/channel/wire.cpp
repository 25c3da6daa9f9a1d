// SPDX-License-Identifier: Apache-2.0
#include "base/channel/wire.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/text.h"

namespace ddp {
namespace {

constexpr std::size_t kHeader = 9;

void append_u32(std::string& out, std::uint32_t value) {
  const std::uint32_t network = htonl(value);
  char bytes[sizeof network];
  std::memcpy(bytes, &network, sizeof network);
  out.append(bytes, sizeof bytes);
}

std::uint32_t read_u32(const char* bytes) {
  std::uint32_t network = 0;
  std::memcpy(&network, bytes, sizeof network);
  return ntohl(network);
}

}  // namespace

std::string_view text_of(const Key& seal) noexcept {
  return {reinterpret_cast<const char*>(seal.data()), seal.size()};
}

std::string encode(const Message& message) {
  const std::string_view text = beginning_of(message.text, kMaxText);
  std::string out;
  out.reserve(kHeader + text.size());
  out.push_back(static_cast<char>(message.kind));
  append_u32(out, static_cast<std::uint32_t>(message.rank));
  append_u32(out, static_cast<std::uint32_t>(text.size()));
  out.append(text);
  return out;
}

Key Seal::next(std::string_view encoded) {
  std::string sealed;
  sealed.reserve(2 * sizeof(std::uint32_t) + encoded.size());
  append_u32(sealed, static_cast<std::uint32_t>(messages_ >> 32));
  append_u32(sealed, static_cast<std::uint32_t>(messages_));
  sealed += encoded;
  ++messages_;
  return hmac_sha256(key_, sealed);
}

void Decoder::append(std::span<const char> bytes) {
  buffer_.append(bytes.data(), bytes.size());
}

std::optional<Message> Decoder::next() {
  if (buffer_.size() < kHeader) return std::nullopt;
  const auto kind = static_cast<std::uint8_t>(buffer_[0]);
  const std::size_t length = read_u32(buffer_.data() + 5);
  if (kind < 1 || kind > static_cast<std::uint8_t>(MessageKind::last) || length > most_text_) {
    throw RuntimeError("a channel received a malformed message");
  }
  const std::size_t encoded = kHeader + length;
  const std::size_t whole = encoded + (seal_ ? kKeyBytes : 0);
  if (buffer_.size() < whole) return std::nullopt;
  const std::string_view bytes = buffer_;
  if (seal_ && !equal_in_constant_time(text_of(seal_->next(bytes.substr(0, encoded))),
                                       bytes.substr(encoded, kKeyBytes))) {
    throw RuntimeError("a channel received a message with a wrong seal");
  }
  Message message;
  message.kind = static_cast<MessageKind>(kind);
  message.rank = static_cast<int>(read_u32(buffer_.data() + 1));
  message.text = buffer_.substr(kHeader, length);
  buffer_.erase(0, whole);
  return message;
}

}  // namespace ddp
