// SPDX-License-Identifier: Apache-2.0
// Rank 0's end of the error channel. It accepts the other ranks (reception.h), receives their
// messages, passes on the first failure, finds lost ranks, and asks all ranks for their status when
// a wait takes too long.
//
// One thread serves all ranks and never waits for a single one: it queues the messages that a
// connection cannot take immediately. The work per event does not depend on the number of ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/channel/connection.h"
#include "base/channel/event_queue.h"
#include "base/channel/reception.h"
#include "ddp_runtime/comm/failure/channel_end.h"
#include "ddp_runtime/comm/failure/hang_analysis.h"
#include "ddp_runtime/comm/group/flight_recorder.h"

namespace ddp::comm {

class Hub final : public ChannelEnd {
 public:
  // `recorder` is rank 0's own and must outlive the object. Only the ranks know `key`.
  Hub(FailureState& failures, const FlightRecorder& recorder, Listener listener, const Key& key,
      int ranks, ChannelOptions options = {});
  // Waits a few seconds for the goodbyes of the other ranks, or for the verdict if a rank has
  // failed.
  ~Hub() override;

  // See ErrorChannel.
  bool wait_for_peer_exit(std::chrono::milliseconds timeout) override;

 private:
  using TimePoint = RunningClock::TimePoint;

  // Another rank.
  struct Peer {
    bool joined = false;
    bool gone = false;     // the rank sent a goodbye, or its connection closed
    bool awaited = true;   // whether to wait for its goodbye
    bool sending = false;  // the event queue reports when the connection can take more data
    Connection connection;
    std::string who;
    TimePoint heard;
    bool stalled = false;                 // the rank is waiting without progress
    std::optional<RankSnapshot> account;  // the rank's latest status
    bool asked = false;                   // status requested and not answered yet
  };
  // Lost ranks, reported only after the hub knows which other ranks were lost with them.
  struct PendingLosses {
    std::vector<Loss> losses;
    TimePoint until;
  };
  // Ends when all ranks have answered. After a remote error, it takes its whole time, in which the
  // cause becomes known if there is one: NCCL notices within milliseconds that another process has
  // ended or has aborted its communicator, often before this process hears of it.
  struct Diagnosis {
    Failure report;
    TimePoint until;
  };

  void serve() noexcept;
  void turn(int milliseconds);
  void handle(std::uint64_t key);

  // Joining:
  bool may_join(int rank, const std::string& who) const;
  void join(Reception::Arrival arrival);
  void no_descriptors_left();
  bool expects_more() const;

  // Ranks that have joined:
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  bool present(const Peer& peer) const { return peer.joined && !peer.gone; }
  void handle_messages(int rank);
  bool act_on(int rank, const Message& message);  // false if the message is a goodbye
  void learn_of(const Failure& failure);
  void send(int rank, const Message& message);
  void ask(int rank);
  void leave(int rank);
  void stop_awaiting(Peer& peer);
  void send_heartbeats();

  // Lost ranks:
  void check_liveness();
  void record_loss(Loss loss);
  void announce_losses();
  bool is_lost(int rank) const;
  void given_up(const Message& message);
  bool stalled() const;

  void process_failures();
  void begin_diagnosis(Failure report);
  void diagnose_hang();
  void announce(const Failure& failure);
  Message verdict_message() const;
  void plan_dump();
  void write_dump();
  bool no_account_will_come();
  std::vector<RankStatus> statuses() const;
  int wait_milliseconds() const;

  const FlightRecorder& recorder_;

  // Used only by the thread:
  EventQueue events_;
  std::vector<Peer> peers_;  // by rank; element 0 is unused
  std::size_t missing_;      // ranks that have not joined
  Reception reception_;
  std::vector<Loss> losses_;  // all losses so far, for the failure record
  std::optional<PendingLosses> pending_losses_;
  std::optional<Diagnosis> diagnosis_;
  std::string last_slow_wait_;
  std::optional<Failure> reported_;
  std::optional<TimePoint> dump_at_;
  // Guarded by the mutex:
  std::size_t awaited_;  // ranks whose goodbye the hub still waits for
  std::size_t gone_ = 0;
  bool record_is_due_ = false;

  std::thread thread_;
};

}  // namespace ddp::comm
