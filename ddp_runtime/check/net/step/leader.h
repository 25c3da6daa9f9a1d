// SPDX-License-Identifier: Apache-2.0
// The leader's side of the connections to all tasks: a roll call with a deadline, then commands and
// answers. Every wait has a time limit, so the leader reports a task that is missing, dies or hangs
// instead of waiting for it. Time in which the leader itself was suspended does not count.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/measure/tcp.h"
#include "ddp_runtime/check/net/step/control_channel.h"
#include "ddp_runtime/check/net/step/handshake.h"
#include "ddp_runtime/check/net/step/job_step.h"
#include "ddp_runtime/check/net/step/suspension.h"
#include "ddp_runtime/comm/secret/step_secret.h"

namespace ddp::check {

// A task that reported and was lost later.
struct LostTask {
  int rank = 0;
  std::string node;
  std::string during;  // "TCP round 2 of 3"
  std::string why;     // "its process exited"
};

using ByRank = std::map<int, nlohmann::json>;

class Leader {
 public:
  using Progress = std::function<void(const std::string& line)>;

  // `program` and the identity of `step` must match those of every task, and each task must be one
  // of the step's tasks on one of its nodes. `grace` is the time limit for a ping. Without a
  // secret, the leader trusts every process that reaches the port.
  Leader(Listener listener, std::string program, JobStep step, comm::StepSecret secret,
         std::chrono::milliseconds grace);

  // Accepts tasks until `expected` tasks have reported or the deadline passes, then stops
  // listening.
  void roll_call(int expected, Deadline deadline, const Progress& progress);

  const std::map<int, Hello>& present() const noexcept { return present_; }
  // Seconds by which each task's clock was ahead of the leader's when the task reported.
  const std::map<int, double>& clock_offsets() const noexcept { return clock_offsets_; }
  // The first few reasons for rejecting tasks. With a secret, only tasks that know it are counted,
  // because a message from an unrelated program is not a finding.
  const std::vector<std::string>& refusals() const noexcept { return refusals_; }
  const std::vector<LostTask>& lost() const noexcept { return lost_; }
  bool reachable(int rank) const { return channels_.contains(rank); }
  bool all_reachable() const noexcept { return lost_.empty(); }
  // How long this process was suspended. A task that waited for rank 0 meanwhile may have given up.
  Clock::duration suspended() const { return watch_.total(); }

  // Sends each rank its command and gathers the answers that arrive within `timeout`. Pings a rank
  // that does not answer, repeatedly and at the end: a rank that responds is slow, and a rank that
  // does not respond is lost. A rank that sends an invalid answer is lost, too. Each answer has
  // "arrival_time", in seconds since 1970 by this clock. `during` is the activity reported for lost
  // ranks.
  ByRank ask(const ByRank& commands, const std::string& during, std::chrono::milliseconds timeout);

  // Sends the same command to all reachable tasks, for work that they do together. Stops waiting if
  // a task is lost, because the other tasks cannot finish without it.
  ByRank ask_all(const nlohmann::json& command, const std::string& during,
                 std::chrono::milliseconds timeout);

  // Sends the verdict to all tasks, if possible also to lost ones, and closes the connections.
  void shut_down(const nlohmann::json& verdict);

 private:
  using Channel = std::unique_ptr<ControlChannel>;

  // A connection whose task is not present yet.
  struct Caller {
    Channel channel;
    Deadline until;  // deadline of its next message
    std::optional<Presentation> presentation;
    Meeting meeting;
    bool believed = false;  // authenticated, or no secret is required
  };
  using Callers = std::vector<Caller>;
  void accept_callers(Callers& callers, std::size_t most);
  void drop_expired(Callers& callers) const;
  bool hear(Caller& caller);  // true if the task is now present or the connection has closed
  bool take(Caller& caller, const nlohmann::json& message);
  bool take_presentation(Caller& caller, const nlohmann::json& message);
  bool take_proof(Caller& caller, const nlohmann::json& message);
  bool take_hello(Caller& caller, const nlohmann::json& message);
  std::string refusal_of(const Presentation& task) const;
  std::string misplaced(const Presentation& task) const;
  void refuse(Caller& caller, const std::string& why);
  void lose(int rank, const std::string& during, const std::string& why);
  std::uint64_t send_orders(const ByRank& commands, const std::string& during);
  enum class WaitPolicy : std::uint8_t { each_alone, together };
  using Inboxes = std::map<std::uint64_t, ByRank>;  // answers to the open commands
  ByRank ask(const ByRank& commands, const std::string& during, std::chrono::milliseconds timeout,
             WaitPolicy manner);
  // Waits until each rank in `waiting` has answered `id` or is lost, or until the deadline passes.
  // Removes ranks that answered from `waiting`.
  void gather(Inboxes& inboxes, std::uint64_t id, std::vector<int>& waiting,
              const std::string& during, Deadline deadline, WaitPolicy manner);
  // Marks ranks that do not respond to a ping as lost.
  void lose_silent(Inboxes& inboxes, std::vector<int> waiting, const std::string& during);
  // Removes invalid answers and marks their senders as lost.
  ByRank sound(ByRank answers, const ByRank& commands, const std::string& during);
  void read_answers(int rank, const std::string& during, Inboxes& inboxes);
  // Waits like poll(2), and moves the deadline by the time in which this process was suspended.
  int wait_until(std::vector<pollfd>& entries, Deadline& deadline);

  Listener listener_;
  std::string program_;
  JobStep step_;
  comm::StepSecret secret_;
  std::chrono::milliseconds grace_;
  std::uint64_t last_id_ = 0;
  std::map<int, Hello> present_;
  std::map<int, double> clock_offsets_;
  std::map<int, Channel> channels_;  // connections to tasks that are not lost
  // Connections to lost tasks, kept open until the end. A task exits when its connection closes,
  // and mpirun terminates all tasks, including the leader, when one task exits with an error.
  std::vector<Channel> lost_channels_;
  std::vector<std::string> refusals_;
  Progress progress_;  // progress output of the roll call
  std::size_t turned_away_ = 0;
  std::vector<LostTask> lost_;
  SuspensionWatch watch_;
};

}  // namespace ddp::check
