// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/tcp/tcp_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace ddp::comm {
namespace {

// Messages that are sent with one call.
constexpr std::size_t kAtOnce = 8;
// The other end has proved who it is, but it may be broken.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 31;

std::size_t total_of(const auto& message) {
  return sizeof message.header + message.data.size();
}

iovec io(const void* data, std::size_t bytes) {
  return {const_cast<void*>(data), bytes};
}

}  // namespace

void TcpStream::attach(FileDescriptor socket, std::string received) {
  socket_ = std::move(socket);
  received_ = std::move(received);
}

void TcpStream::send(Ticket ticket, int tag, std::span<const std::byte> data) {
  outbox_.push_back({ticket, {data.size(), tag}, data});
}

void TcpStream::receive(Ticket ticket, int tag, std::span<std::byte> data) {
  // The last one may still be arriving; it is then found when it is complete.
  const auto complete = incoming_ && !incoming_->ticket ? early_.end() - 1 : early_.end();
  const auto early = std::find_if(early_.begin(), complete,
                                  [&](const Early& message) { return message.tag == tag; });
  if (early == complete) {
    expected_.push_back({ticket, tag, data});
    return;
  }
  const bool fits = early->data.size() == data.size();
  if (fits && !data.empty()) std::memcpy(data.data(), early->data.data(), data.size());
  early_.erase(early);
  finished_.push_back({ticket, !fits});
}

std::span<const TcpStream::Finished> TcpStream::progress() {
  if (socket_ && !ended_) {
    flush();
    fill();
  }
  reported_.clear();
  reported_.swap(finished_);
  return reported_;
}

void TcpStream::forget(Ticket ticket) noexcept {
  const auto mine = [&](const auto& message) { return message.ticket == ticket; };
  std::erase_if(expected_, mine);
  std::erase_if(finished_, mine);
  const auto outgoing = std::find_if(outbox_.begin(), outbox_.end(), mine);
  const bool half_sent = outgoing != outbox_.end() && outgoing->sent > 0;
  if (outgoing != outbox_.end()) outbox_.erase(outgoing);
  const bool half_received = incoming_ && incoming_->ticket == ticket;
  if (half_received) incoming_.reset();
  if (half_sent || half_received) ended_ = true;
}

short TcpStream::events() const noexcept {
  if (!socket_ || ended_) return 0;
  const bool reads = incoming_ || !expected_.empty();
  return static_cast<short>((reads ? POLLIN : 0) | (outbox_.empty() ? 0 : POLLOUT));
}

void TcpStream::flush() {
  while (!outbox_.empty() && !ended_) {
    std::array<iovec, 2 * kAtOnce> parts;
    std::size_t used = 0;
    for (std::size_t i = 0; i < std::min(kAtOnce, outbox_.size()); ++i) {
      const Outgoing& message = outbox_[i];
      const auto header = std::as_bytes(std::span(&message.header, 1));
      const std::size_t of_header = std::min(message.sent, header.size());
      const std::size_t of_data = message.sent - of_header;
      if (of_header < header.size()) {
        parts[used++] = io(header.data() + of_header, header.size() - of_header);
      }
      if (of_data < message.data.size()) {
        parts[used++] = io(message.data.data() + of_data, message.data.size() - of_data);
      }
    }
    msghdr call{};
    call.msg_iov = parts.data();
    call.msg_iovlen = used;
    const ssize_t n = sendmsg(socket_.get(), &call, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return;
      fill();  // what the other end has sent before it closed the connection
      ended_ = true;
      return;
    }
    auto left = static_cast<std::size_t>(n);
    while (!outbox_.empty()) {
      Outgoing& message = outbox_.front();
      const std::size_t moved = std::min(left, total_of(message) - message.sent);
      message.sent += moved;
      left -= moved;
      if (message.sent < total_of(message)) break;
      finished_.push_back({message.ticket});
      outbox_.pop_front();
    }
  }
}

void TcpStream::fill() {
  while (!ended_) {
    if (!incoming_ && header_bytes_ == sizeof header_ && !begin_message()) return;
    if (incoming_ && incoming_->received == incoming_->data.size()) {
      end_message();
    } else if (!read_more()) {
      return;
    }
  }
}

// Decides where the bytes of the message go whose header has arrived. Returns false if it must wait
// until it is asked for.
bool TcpStream::begin_message() {
  if (header_.bytes > kMaxBytes) throw RuntimeError("a message over TCP has an impossible length");
  const int tag = static_cast<int>(header_.tag);
  const auto expected = std::find_if(expected_.begin(), expected_.end(),
                                     [&](const Expected& e) { return e.tag == tag; });
  if (expected == expected_.end()) {
    if (expected_.empty()) return false;
    auto& data = early_.emplace_back(Early{tag, std::vector<std::byte>(header_.bytes)}).data;
    incoming_ = Incoming{std::nullopt, data, 0};
  } else if (expected->data.size() != header_.bytes) {
    finished_.push_back({expected->ticket, true});
    expected_.erase(expected);
    ended_ = true;
    return false;
  } else {
    incoming_ = Incoming{expected->ticket, expected->data, 0};
    expected_.erase(expected);
  }
  header_bytes_ = 0;
  return true;
}

void TcpStream::end_message() {
  const auto ticket = std::exchange(incoming_, std::nullopt)->ticket;
  if (ticket) {
    finished_.push_back({*ticket});
    return;
  }
  // It may have been asked for while it arrived.
  const int tag = early_.back().tag;
  const auto expected = std::find_if(expected_.begin(), expected_.end(),
                                     [&](const Expected& e) { return e.tag == tag; });
  if (expected == expected_.end()) return;
  const Expected asked = *expected;
  expected_.erase(expected);
  receive(asked.ticket, asked.tag, asked.data);
}

// Reads the rest of the message, and the header behind it.
bool TcpStream::read_more() {
  const auto header = std::as_writable_bytes(std::span(&header_, 1)).subspan(header_bytes_);
  const auto data =
      incoming_ ? incoming_->data.subspan(incoming_->received) : std::span<std::byte>();
  const std::size_t n = read({io(data.data(), data.size()), io(header.data(), header.size())});
  const std::size_t of_data = std::min(n, data.size());
  if (incoming_) incoming_->received += of_data;
  header_bytes_ += n - of_data;
  return n > 0;
}

std::size_t TcpStream::read(std::array<iovec, 2> parts) {
  if (!received_.empty()) {
    std::size_t taken = 0;
    for (const auto& part : parts) {
      const std::size_t n = std::min(part.iov_len, received_.size() - taken);
      if (n > 0) std::memcpy(part.iov_base, received_.data() + taken, n);
      taken += n;
    }
    received_.erase(0, taken);
    return taken;
  }
  msghdr call{};
  call.msg_iov = parts.data();
  call.msg_iovlen = parts.size();
  ssize_t n = 0;
  do {
    n = recvmsg(socket_.get(), &call, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n == 0 || (n < 0 && errno != EAGAIN)) ended_ = true;
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

}  // namespace ddp::comm
