// SPDX-License-Identifier: Apache-2.0
// Tests whether packets of a given size reach another node unfragmented, with UDP datagrams that
// must not be fragmented. The two ends of a TCP connection agree on a packet size when they
// connect, but a switch between them with a smaller limit silently drops large packets.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "ddp_runtime/check/net/measure/tcp.h"

namespace ddp::check {

class PathProbe {
 public:
  // Opens a UDP port. Throws NetError.
  PathProbe();
  std::uint16_t port() const noexcept { return port_; }

  // Sends packets of the relevant sizes up to `largest` bytes, each three times; `token`
  // distinguishes this probe from others. Sizes that this machine refuses to send are skipped.
  // `mtu` tells the receiver which size is the last.
  void send(const std::string& host, std::uint16_t port, int mtu, int largest,
            std::uint64_t token) const;

  // The size in bytes of the largest packet received with this token; 0 if none arrived. Waits
  // until the deadline, or until a packet of the sender's MTU arrives.
  int receive(std::uint64_t token, Deadline deadline) const;

 private:
  FileDescriptor socket_;
  std::uint16_t port_ = 0;
};

}  // namespace ddp::check
