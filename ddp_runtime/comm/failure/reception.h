// Rank 0's port: who connects there, until it has proved that it is a rank of this job.
//
// Whoever reaches the port may connect. None of these connections is waited for, each may say
// little and must say it soon, and of too many the oldest that has said nothing goes first:
// strangers take no rank's place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "ddp_runtime/comm/failure/connection.h"
#include "ddp_runtime/comm/failure/event_queue.h"
#include "ddp_runtime/comm/failure/greeting.h"
#include "ddp_runtime/comm/running_clock.h"

namespace ddp::comm {

class Reception {
 public:
  using TimePoint = RunningClock::TimePoint;

  // A rank that has proved itself and has heard that it is welcome, since it goes on talking.
  struct Arrival {
    int rank = 0;
    std::string who;
    Connection connection;
    Message first;
  };
  struct Guest {
    // Whether a rank that has proved itself may come in.
    std::function<bool(int rank, const std::string& who)> may_join;
    std::function<void(Arrival)> join;
  };

  // Its events have keys from kFirstKey on; all below are free.
  static constexpr std::uint64_t kFirstKey = std::uint64_t{1} << 32;

  Reception(EventQueue& events, Listener listener, const Key& key, Guest guest);

  // Acts on an event of this key. `missing`: ranks that are still to come. False: no file
  // descriptor is left for somebody who waits at the port, which is closed for a second.
  bool handle(std::uint64_t key, TimePoint now, std::size_t missing);
  // Once in a while: ends connections of those who are too slow, opens the port or closes it.
  void look_after(TimePoint now, bool open);
  // The same message to those who may come in and have not yet said more.
  void tell_the_welcomed(const Message& message);

 private:
  struct Stranger {
    Connection connection;
    TimePoint since;
    HubGreeting greeting;
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
  TimePoint listen_at_;  // not before
  Strangers strangers_;
  std::uint64_t next_ = kFirstKey + 1;
};

}  // namespace ddp::comm
