#include "ddp_runtime/check/net/step/control_channel.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace ddp::check {
namespace {

constexpr std::size_t kHeader = sizeof(std::uint32_t);

}  // namespace

void ControlChannel::send(const nlohmann::json& message, Deadline deadline) {
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMostBytes) throw NetError("a control message is too large");
  const std::uint32_t length = htonl(static_cast<std::uint32_t>(text.size()));
  std::string frame(kHeader, '\0');
  std::memcpy(frame.data(), &length, kHeader);
  frame += text;
  const std::lock_guard lock(sending_);
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
  if (length > kMostBytes) throw NetError("the other end does not speak this protocol");
  if (buffer_.size() < kHeader + length) return std::nullopt;
  auto message = nlohmann::json::parse(buffer_.begin() + kHeader,
                                       buffer_.begin() + kHeader + length, nullptr, false);
  buffer_.erase(0, kHeader + length);
  if (!message.is_object()) throw NetError("the other end does not speak this protocol");
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
