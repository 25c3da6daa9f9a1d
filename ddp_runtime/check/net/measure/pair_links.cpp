#include "ddp_runtime/check/net/measure/pair_links.h"

#include <linux/tcp.h>  // glibc's own lacks tcpi_dsack_dups
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "ddp_runtime/check/net/measure/own_link.h"

namespace ddp::check {
namespace {

// Sent first by whoever connects; anything else is not our peer.
constexpr std::uint64_t kMagic = 0x6464702d63686b31;  // "ddp-chk1"
using Preamble = std::array<std::uint64_t, 2>;

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
  // Up to a tenth of them went untold in measurements: an acknowledgement tells of one range only.
  const std::uint64_t in_vain = std::uint64_t{arrived_twice} + arrived_twice / 4;
  const std::uint64_t lost = sent_again - std::min<std::uint64_t>(sent_again, in_vain);
  return static_cast<std::int64_t>(lost) * segment_bytes;
}

std::unique_ptr<PairLink> call_peer(const std::string& host, std::uint16_t port,
                                    std::uint64_t exchange, Deadline deadline,
                                    const Origin& origin) {
  FileDescriptor socket = connect_to(host, port, deadline, origin);
  const Preamble preamble{kMagic, exchange};
  send_all(socket.get(), std::as_bytes(std::span(preamble)), deadline);
  return std::make_unique<TcpLink>(std::move(socket), deadline);
}

std::unique_ptr<PairLink> await_peer(const Listener& listener, std::uint64_t exchange,
                                     Deadline deadline) {
  while (auto socket = accept_until(listener, deadline)) {
    Preamble preamble{};
    try {
      // A stranger who says nothing must not use up the peer's time.
      const Deadline soon = std::min(deadline, Clock::now() + std::chrono::seconds(1));
      receive_all(socket->get(), std::as_writable_bytes(std::span(preamble)), soon);
    } catch (const NetError&) {
      continue;
    }
    if (preamble == Preamble{kMagic, exchange}) {
      return std::make_unique<TcpLink>(std::move(*socket), deadline);
    }
  }
  throw NetError("the other end did not connect in time");
}

std::unique_ptr<PairLink> link_by_group(comm::Group& group, int peer_rank) {
  return std::make_unique<GroupLink>(group, peer_rank);
}

}  // namespace ddp::check
