// SPDX-License-Identifier: Apache-2.0
// Listens to the agents of all ranks, and turns what they say, and that they say nothing, into
// events. Time in which this process does not run is not silence: while a job is suspended, or its
// machine is paused, agents may be, too.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/channel/connection.h"
#include "base/channel/greeting.h"
#include "base/channel/running_clock.h"
#include "base/deadline.h"
#include "base/secret/key.h"
#include "base/socket.h"
#include "ddp_runtime/elastic/events.h"

namespace ddp::elastic {

class Head {
 public:
  // Throws RuntimeError if it cannot listen.
  explicit Head(const Key& key);

  // "HOST[,HOST...]:PORT", for DDP_RUN_HEAD.
  std::string address() const;

  // What happens until the deadline, or until one of the descriptors `wakes` can be read. Returns
  // as soon as there is an event, or an agent has left.
  std::vector<Event> wait(Deadline deadline, std::span<const int> wakes);

  // Sends a signal to the programs of a generation, also to those whose agents come later.
  void signal(int generation, int number);
  // Whether an agent of the generation is connected.
  bool has_agents(int generation) const;
  void forget(int generation);
  // The SLURM step in which the generation runs, "JOB.STEP"; empty until an agent has said it.
  std::string step_of(int generation) const;

 private:
  struct Agent {
    Connection connection;
    HubGreeting greeting;
    bool greeted = false;
    int generation = 0;
    int rank = 0;
    std::string node;
    std::string step;
    Clock::time_point heard;
    bool suspected = false;
    bool stopped = false;  // its program, by its own words
    bool ended = false;    // it has told how its program ended
    bool closed = false;
  };

  static void send_signal(Agent& agent, int number);
  void accept_all();
  void limit_strangers();
  void read(Agent& agent);
  void greet(Agent& agent, const Message& message);
  void take(Agent& agent, const Message& message);
  void close(Agent& agent);
  void beat();
  void watch();
  bool is_silent(const std::string& node) const;

  Key key_;
  Listener listener_;
  std::list<Agent> agents_;
  std::vector<Event> events_;
  RunningClock clock_;
  std::map<std::string, Clock::time_point> heard_;  // by node
  int signaled_generation_ = 0;
  int signal_ = 0;  // that its programs were sent last
  Clock::time_point beaten_;
};

}  // namespace ddp::elastic
