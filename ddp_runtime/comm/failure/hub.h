// Rank 0's end of the error channel: takes in the others (reception.h), listens to all of them,
// passes the first failure to everyone, finds out who is lost, and asks everyone when a wait takes
// too long.
//
// One thread, which never waits for any one of the others: messages that a connection does not take
// at once are kept for it. What it does for one event does not depend on the number of ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/diagnosis/activity.h"
#include "ddp_runtime/comm/diagnosis/inquest.h"
#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/connection.h"
#include "ddp_runtime/comm/failure/event_queue.h"
#include "ddp_runtime/comm/failure/reception.h"

namespace ddp::comm {

class Hub final : public ChannelEnd {
 public:
  // `activity` is rank 0's own; it must outlive the object. All ranks know `key`, and nobody else.
  Hub(FailureState& failures, const ActivityLog& activity, Listener listener, const Key& key,
      int ranks, ChannelOptions options = {});
  // In a healthy world, waits a few seconds for the goodbyes of the others.
  ~Hub() override;

  // Does not wait for ranks that were found to be lost.
  bool others_gone(std::chrono::milliseconds patience) override;

 private:
  using TimePoint = RunningClock::TimePoint;

  // Another rank.
  struct Member {
    bool joined = false;
    bool gone = false;     // it said goodbye, or its connection closed
    bool awaited = true;   // its goodbye is worth waiting for
    bool sending = false;  // the event queue tells when it can be sent more
    Connection connection;
    std::string who;
    TimePoint heard;
    bool stalled = false;             // it waits and nothing moves
    std::optional<Activity> account;  // its last
    bool asked = false;               // and has not answered yet
  };
  // Ranks that were lost, until all are known that went with them.
  struct Mourning {
    std::vector<Loss> losses;
    TimePoint until;
  };
  struct Inquest {
    Failure complaint;
    TimePoint until;
  };

  void serve() noexcept;
  void turn(int milliseconds);
  void handle(std::uint64_t key);

  // Those who come.
  bool may_join(int rank, const std::string& who) const;
  void join(Reception::Arrival arrival);
  void no_descriptors_left();
  bool expects_somebody() const;

  // Those who are there.
  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  bool present(const Member& member) const { return member.joined && !member.gone; }
  void hear(int rank);
  bool act_on(int rank, const Message& message);  // false: it said goodbye
  void send(int rank, const Message& message);
  void ask(int rank);
  void leave(int rank);
  void stop_awaiting(Member& member);
  void send_heartbeats();

  // Those who are lost.
  void judge_silence();
  void mourn(Loss loss);
  void conclude_mourning();
  bool is_lost(int rank) const;
  bool stalled() const;

  void rule_on_failures();
  void begin_inquest(Failure complaint);
  void conduct_inquest();
  void rule(const Failure& failure);
  Message verdict_message() const;
  void write_dump();
  std::vector<Witness> witnesses() const;
  int wait_milliseconds() const;

  const ActivityLog& activity_;

  // Of the thread alone:
  EventQueue events_;
  std::vector<Member> members_;  // by rank; the first is not used
  std::size_t missing_;          // ranks that have not joined
  Reception reception_;
  std::vector<Loss> losses_;  // all so far, for the record
  std::optional<Mourning> mourning_;
  std::optional<Inquest> inquest_;
  std::string last_suspicion_;
  std::optional<Failure> told_;
  std::optional<TimePoint> dump_at_;
  // Guarded by the mutex:
  std::size_t awaited_;  // ranks whose goodbye has not come and is worth waiting for
  std::size_t gone_ = 0;

  std::thread thread_;
};

}  // namespace ddp::comm
