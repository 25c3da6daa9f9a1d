// Whether packets of a size reach another node whole: UDP datagrams that must not be cut on the
// way. TCP between the two may work all the same, because its ends agree on a size when they
// connect; where a switch in between carries less, large packets vanish without a word.
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

  // Sends packets of the sizes worth knowing up to `mtu` bytes, each three times; `token` tells
  // this probe from others. What this machine itself refuses to send is not sent.
  void send(const std::string& host, std::uint16_t port, int mtu, std::uint64_t token) const;

  // The size in bytes of the largest packet with this token that arrived; 0 if none did. Waits for
  // one of `mtu` bytes at most until then.
  int receive(int mtu, std::uint64_t token, Deadline deadline) const;

 private:
  FileDescriptor socket_;
  std::uint16_t port_ = 0;
};

}  // namespace ddp::check
