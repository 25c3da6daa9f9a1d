// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/pair_links.h"

#include <linux/tcp.h>  // glibc's netinet/tcp.h lacks tcpi_dsack_dups
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "base/secret/key.h"
#include "ddp_runtime/check/net/measure/own_link.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxPairCallers = 64;

// The first bytes from the connecting end, which identify the peer.
std::string preamble_of(const std::string& token) {
  if (token.size() != kTokenCharacters) throw NetError("the exchange has no token");
  return "ddp-chk2" + token;
}

// A connection that has not sent the token yet.
struct PairCaller {
  FileDescriptor socket;
  std::string said;
};

// Returns true if the caller is done: it disconnected, is not the peer, or is the peer and was
// moved to `peer`.
bool hear(PairCaller& caller, const std::string& preamble, FileDescriptor& peer) {
  std::array<char, 64> chunk{};  // later data of the peer stays in the socket
  const std::size_t missing = std::min(chunk.size(), preamble.size() - caller.said.size());
  const ssize_t n = recv(caller.socket.get(), chunk.data(), missing, MSG_DONTWAIT);
  if (n < 0) return errno != EAGAIN && errno != EINTR;
  if (n == 0) return true;
  caller.said.append(chunk.data(), static_cast<std::size_t>(n));
  if (caller.said.size() < preamble.size()) return false;
  if (!peer && equal_in_constant_time(caller.said, preamble)) {
    peer = std::move(caller.socket);
  }
  return true;
}

// The peer sends its token immediately after connecting, so if there are too many callers, the
// oldest one is closed.
void accept_callers(const Listener& listener, const std::string& preamble,
                    std::deque<PairCaller>& callers, FileDescriptor& peer) {
  for (std::size_t n = 0; n < kMaxPairCallers && !peer; ++n) {
    auto socket = accept_until(listener, Clock::now());
    if (!socket) return;
    PairCaller caller{std::move(*socket), {}};
    if (!hear(caller, preamble, peer)) callers.push_back(std::move(caller));
    if (callers.size() > kMaxPairCallers) callers.pop_front();
  }
}

class TcpLink final : public PairLink {
 public:
  TcpLink(FileDescriptor socket, Deadline deadline)
      : socket_(std::move(socket)), deadline_(deadline) {}
  void send(std::span<std::byte> data) override { send_all(socket_.get(), data, deadline_); }
  void receive(std::span<std::byte> data) override { receive_all(socket_.get(), data, deadline_); }
  std::int64_t lost_bytes() const override {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
    return bytes_lost(info.tcpi_total_retrans, info.tcpi_dsack_dups, info.tcpi_snd_mss);
  }
  std::string via() const override {
    const std::string address = local_address(socket_.get());
    return interface_with(address) + " " + address;
  }

 private:
  FileDescriptor socket_;
  Deadline deadline_;
};

class GroupLink final : public PairLink {
 public:
  GroupLink(comm::Group& group, int peer) : group_(group), peer_(peer) {}
  void send(std::span<std::byte> data) override {
    group_.send(comm::buffer_of(data), peer_, "ddp-check exchange").wait();
  }
  void receive(std::span<std::byte> data) override {
    group_.receive(comm::buffer_of(data), peer_, "ddp-check exchange").wait();
  }

 private:
  comm::Group& group_;
  int peer_;
};

}  // namespace

std::int64_t bytes_lost(std::uint32_t sent_again, std::uint32_t arrived_twice,
                        std::uint32_t segment_bytes) noexcept {
  // In measurements, up to a tenth of the duplicates were not reported, because an acknowledgment
  // carries only one range.
  const std::uint64_t spurious = std::uint64_t{arrived_twice} + arrived_twice / 4;
  const std::uint64_t lost = sent_again - std::min<std::uint64_t>(sent_again, spurious);
  return static_cast<std::int64_t>(lost) * segment_bytes;
}

std::unique_ptr<PairLink> call_peer(const std::string& host, std::uint16_t port,
                                    const std::string& token, Deadline deadline,
                                    const Origin& origin) {
  const std::string preamble = preamble_of(token);
  FileDescriptor socket = connect_to(host, port, deadline, origin);
  send_all(socket.get(), std::as_bytes(std::span(preamble)), deadline);
  return std::make_unique<TcpLink>(std::move(socket), deadline);
}

std::unique_ptr<PairLink> await_peer(const Listener& listener, const std::string& token,
                                     Deadline deadline) {
  const std::string preamble = preamble_of(token);
  std::deque<PairCaller> callers;
  while (Clock::now() < deadline) {
    std::vector<pollfd> entries{{listener.socket.get(), POLLIN, 0}};
    for (const auto& caller : callers) entries.push_back({caller.socket.get(), POLLIN, 0});
    poll(entries.data(), entries.size(), milliseconds_until(deadline));
    FileDescriptor peer;
    std::size_t entry = 0;
    std::erase_if(callers, [&](PairCaller& caller) {
      return entries[++entry].revents != 0 && hear(caller, preamble, peer);
    });
    if ((entries[0].revents & POLLIN) != 0) accept_callers(listener, preamble, callers, peer);
    if (peer) return std::make_unique<TcpLink>(std::move(peer), deadline);
  }
  throw NetError("the other end did not connect in time");
}

std::unique_ptr<PairLink> link_by_group(comm::Group& group, int peer_rank) {
  return std::make_unique<GroupLink>(group, peer_rank);
}

}  // namespace ddp::check
