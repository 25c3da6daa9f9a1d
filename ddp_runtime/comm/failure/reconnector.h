// SPDX-License-Identifier: Apache-2.0
// Finds rank 0 again after a rank's connection has fallen silent. Tries each of rank 0's addresses
// in turn, because another network between the two machines may still work.
//
// The search is split into steps, because the calling thread cannot stop its other work to wait for
// an answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/channel/connection.h"
#include "base/channel/greeting.h"
#include "base/secret/key.h"

namespace ddp::comm {

class Reconnector {
 public:
  Reconnector(std::vector<Connection::Endpoint> addresses, const Key& key, int rank);

  // Returns a connection once rank 0 has accepted it. Blocks only while connecting to one address,
  // for at most `timeout`.
  std::optional<Connection> step(std::chrono::milliseconds timeout);
  // The last address at which a program other than rank 0 answered.
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
