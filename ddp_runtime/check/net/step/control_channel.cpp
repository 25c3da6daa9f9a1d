// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/control_channel.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "ddp_runtime/check/net/step/untrusted_json.h"

namespace ddp::check {
namespace {

constexpr std::size_t kHeader = sizeof(std::uint32_t);
constexpr const char* kNotOurs = "the other end uses another protocol";
constexpr std::size_t kTag = kKeyBytes;

std::string tag_of(const Key& key, std::uint64_t number, std::string_view text) {
  const Key tag = hmac_sha256(key, fmt::format("{} {}", number, text));
  return {reinterpret_cast<const char*>(tag.data()), tag.size()};
}

}  // namespace

void ControlChannel::seal(const Key& sending, const Key& receiving) {
  const std::lock_guard lock(sending_);
  sent_ = Seal{sending};
  received_ = Seal{receiving};
}

void ControlChannel::send(const nlohmann::json& message, Deadline deadline) {
  std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxBytes - kTag) throw NetError("a control message is too large");
  const std::lock_guard lock(sending_);
  if (sent_) text += tag_of(sent_->key, sent_->messages++, text);
  const std::uint32_t length = htonl(static_cast<std::uint32_t>(text.size()));
  std::string frame(kHeader, '\0');
  std::memcpy(frame.data(), &length, kHeader);
  frame += text;
  send_all(fd(), std::as_bytes(std::span(frame)), deadline);
}

bool ControlChannel::fill() {
  std::array<char, 65536> chunk{};
  while (true) {
    const ssize_t n = recv(fd(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n > 0) {
      buffer_.append(chunk.data(), static_cast<std::size_t>(n));
      return true;
    }
    if (n < 0 && errno == EINTR) continue;
    return n < 0 && (errno == EAGAIN);
  }
}

std::optional<nlohmann::json> ControlChannel::next() {
  if (buffer_.size() < kHeader) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, buffer_.data(), kHeader);
  length = ntohl(length);
  if (length > most_bytes_) throw NetError(kNotOurs);
  if (buffer_.size() < kHeader + length) return std::nullopt;
  std::string_view text = std::string_view(buffer_).substr(kHeader, length);
  if (received_) {
    if (length < kTag) throw NetError(kNotOurs);
    const std::string_view tag = text.substr(length - kTag);
    text.remove_suffix(kTag);
    if (!equal_in_constant_time(tag, tag_of(received_->key, received_->messages++, text))) {
      throw NetError("received a message with a wrong proof");
    }
  }
  auto message = parse_untrusted(text);
  buffer_.erase(0, kHeader + length);
  if (!message.is_object()) throw NetError(kNotOurs);
  return message;
}

std::optional<nlohmann::json> ControlChannel::receive(Deadline deadline) {
  while (true) {
    if (auto message = next()) return message;
    if (!wait_for(fd(), POLLIN, deadline)) return std::nullopt;
    if (!fill()) throw NetError("the other end closed the connection");
  }
}

}  // namespace ddp::check
