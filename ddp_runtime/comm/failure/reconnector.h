// How a rank finds rank 0 again when its connection has fallen silent: by each of rank 0's
// addresses in turn, since a network that is out of order need not be the only one between the two.
//
// In steps, because the thread that takes them has more to do than to wait for a welcome.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "ddp_runtime/comm/failure/connection.h"
#include "ddp_runtime/comm/failure/greeting.h"
#include "ddp_runtime/comm/secret/key.h"

namespace ddp::comm {

class Reconnector {
 public:
  Reconnector(std::vector<Connection::Endpoint> addresses, const Key& key, int rank);

  // A connection that rank 0 has welcomed, as soon as there is one. Waits only for an address to
  // accept, at most `timeout`.
  std::optional<Connection> step(std::chrono::milliseconds timeout);
  // Where last somebody answered who is not rank 0.
  const std::optional<Connection::Endpoint>& stranger() const noexcept { return stranger_; }

 private:
  struct Attempt {
    Connection connection;
    Connection::Endpoint address;
    RankGreeting greeting;
    std::chrono::steady_clock::time_point until;
  };
  void begin(std::chrono::milliseconds timeout);

  std::vector<Connection::Endpoint> addresses_;
  Key key_;
  int rank_;
  std::size_t next_ = 0;
  std::optional<Attempt> attempt_;
  std::optional<Connection::Endpoint> stranger_;
};

}  // namespace ddp::comm
