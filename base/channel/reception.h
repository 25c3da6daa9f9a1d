// SPDX-License-Identifier: Apache-2.0
// Rank 0's port. Handles each connection until the other end has proved that it is a rank of this
// job.
//
// Any program that reaches the port may connect. The hub never waits for such a connection, limits
// the amount of data and the time of its handshake, and, if there are too many connections, first
// closes the oldest one that has sent no data. So other programs cannot keep a rank out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/channel/connection.h"
#include "base/channel/event_queue.h"
#include "base/channel/greeting.h"
#include "base/channel/running_clock.h"

namespace ddp {

class Reception {
 public:
  using TimePoint = RunningClock::TimePoint;

  // A rank that has authenticated and knows that it was accepted, because it has sent another
  // message.
  struct Arrival {
    int rank = 0;
    std::string who;
    Connection connection;
    Message first;
  };
  struct Guest {
    // Decides whether to accept a rank that has authenticated.
    std::function<bool(int rank, const std::string& who)> may_join;
    std::function<void(Arrival)> join;
    // If set: called for a connection that ends while the two ends prove that they have the key.
    std::function<void(const Connection&)> unproved = {};
  };

  // Event keys from kFirstKey on belong to this class; the caller may use all smaller keys.
  static constexpr std::uint64_t kFirstKey = std::uint64_t{1} << 32;

  Reception(EventQueue& events, Listener listener, const Key& key, Guest guest);

  // Handles an event with this key. `missing`: the number of ranks that have not joined. Returns
  // false if no file descriptor is left for a waiting connection; the port is then closed for a
  // second.
  bool handle(std::uint64_t key, TimePoint now, std::size_t missing);
  // Closes connections that are too slow, and opens or closes the port. Call it regularly.
  void look_after(TimePoint now, bool open);
  // Sends the message to ranks that were accepted but have not sent another message yet.
  void tell_the_welcomed(const Message& message);

 private:
  struct Stranger {
    Connection connection;
    TimePoint since;
    HubGreeting greeting;
    bool proved = false;
    bool welcomed = false;
  };
  using Strangers = std::map<std::uint64_t, Stranger>;  // by event key, oldest first

  bool accept(TimePoint now, std::size_t missing);
  void hear(std::uint64_t key);
  bool greet(Stranger& stranger, const Message& message);
  bool drop_one();

  EventQueue& events_;
  Listener listener_;
  Key key_;
  Guest guest_;
  TimePoint listen_at_;  // earliest time to listen again
  Strangers strangers_;
  std::uint64_t next_ = kFirstKey + 1;
};

}  // namespace ddp
