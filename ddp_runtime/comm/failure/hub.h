// Rank 0's end of the error channel: accepts the others, listens to all of them, passes the first
// failure to everyone, and asks everyone when a wait takes too long.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/diagnosis/activity.h"
#include "ddp_runtime/comm/diagnosis/inquest.h"
#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/connection.h"

namespace ddp::comm {

class Hub final : public ChannelEnd {
 public:
  // `activity` is rank 0's own; it must outlive the object. `dump`: a file for the record of the
  // first failure (see failure_record); empty for none.
  Hub(FailureState& failures, const ActivityLog& activity, Listener listener, std::string token,
      int ranks, std::string dump = {});
  // In a healthy world, waits a few seconds for the goodbyes of the others.
  ~Hub() override;

  bool others_gone(std::chrono::milliseconds patience) override;

 private:
  struct Spoke {
    Connection connection;
    int rank = -1;  // until it has said hello with the job's token
    std::string who;
    std::optional<Activity> account;  // its last
    bool asked = false;               // and has not answered yet
  };

  void serve();
  void wait_for_events();
  void accept_spoke();
  bool hear(Spoke& spoke);                            // false: its connection is over
  bool act_on(Spoke& spoke, const Message& message);  // likewise
  bool welcome(Spoke& spoke, const Message& message);
  void count_gone();

  void begin_inquest(Failure complaint);
  void conduct_inquest();
  void rule(const Failure& failure);
  void tell_everyone(const Failure& failure);
  void write_dump();
  std::vector<Witness> witnesses() const;

  const ActivityLog& activity_;
  Listener listener_;
  std::string token_;
  std::string dump_;
  std::size_t expected_;
  std::size_t gone_ = 0;

  // Of the thread alone:
  std::vector<Spoke> spokes_;
  std::vector<Witness> departed_;  // those that are gone, for the dump
  struct Inquest {
    Failure complaint;
    Clock::time_point until;
  };
  std::optional<Inquest> inquest_;
  std::optional<Failure> told_;
  std::optional<Clock::time_point> dump_at_;
  std::thread thread_;
};

}  // namespace ddp::comm
