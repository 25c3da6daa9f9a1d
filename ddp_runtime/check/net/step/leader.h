// The leader's side of the connections to all tasks: a roll call with a deadline, then orders and
// answers with a limit on every wait, so that a task that is missing, dies or hangs is named and
// never waited for.
#pragma once

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
#include "ddp_runtime/comm/secret/step_secret.h"

namespace ddp::check {

// A task that reported and was lost later.
struct LostTask {
  int rank = 0;
  std::string node;
  std::string during;  // "TCP round 2 of 3"
  std::string why;     // "its process ended"
};

using ByRank = std::map<int, nlohmann::json>;

class Leader {
 public:
  using Progress = std::function<void(const std::string& line)>;

  // `program` and the identity of `step` must be those of every task, and each task must be one of
  // the step's on one of its nodes; `grace` is the time for a sign of life.
  // Without a secret everybody who reaches the port is believed to be who he says.
  Leader(Listener listener, std::string program, JobStep step, comm::StepSecret secret,
         std::chrono::milliseconds grace);

  // Accepts tasks until all of `expected` have reported, and listens no more; or until the deadline
  // has passed.
  void roll_call(int expected, Deadline deadline, const Progress& progress);

  const std::map<int, Hello>& present() const noexcept { return present_; }
  // Seconds that each task's clock was ahead of this one when it reported.
  const std::map<int, double>& clock_offsets() const noexcept { return clock_offsets_; }
  // Why tasks that came were sent away again, in words; of many only the first. Where there is a
  // secret these are tasks that know it: what a stranger says is no finding.
  const std::vector<std::string>& refusals() const noexcept { return refusals_; }
  const std::vector<LostTask>& lost() const noexcept { return lost_; }
  bool reachable(int rank) const { return channels_.contains(rank); }
  bool all_reachable() const noexcept { return lost_.empty(); }

  // Sends each rank its order and gathers the answers that come within `timeout`. Who does not
  // answer is asked for a sign of life, now and then and at the end, and lost if it gives none; who
  // gives one is only slow. Who sends something that is no answer is lost, too. Each answer has
  // "arrival_time": when, in seconds since 1970 by this clock. `during` is what the lost ones are
  // said to have been lost in.
  ByRank ask(const ByRank& commands, const std::string& during, std::chrono::milliseconds timeout);

  // The same order for all that can be reached, for what they do together: when one of them is lost
  // the others are not waited for, since they cannot finish.
  ByRank ask_all(const nlohmann::json& command, const std::string& during,
                 std::chrono::milliseconds timeout);

  // The last message to everybody, to lost tasks too as far as they hear it; the connections close.
  void shut_down(const nlohmann::json& verdict);

 private:
  using Channel = std::unique_ptr<ControlChannel>;

  // Somebody who has connected and is not present yet.
  struct Caller {
    Channel channel;
    Deadline until;  // by then it has said what comes next
    std::optional<Presentation> presentation;
    comm::Meeting meeting;
    bool believed = false;  // it has proved itself, or there is nothing to prove
  };
  using Callers = std::vector<Caller>;
  void accept_callers(Callers& callers, std::size_t most);
  void drop_expired(Callers& callers) const;
  bool hear(Caller& caller);  // true: it is present, or it is gone
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
  using Inboxes = std::map<std::uint64_t, ByRank>;  // answers to the orders that are open
  ByRank ask(const ByRank& commands, const std::string& during, std::chrono::milliseconds timeout,
             WaitPolicy manner);
  // Until all of `waiting` have answered `id` or are lost, and leave it, or the deadline.
  void gather(Inboxes& inboxes, std::uint64_t id, std::vector<int>& waiting,
              const std::string& during, Deadline deadline, WaitPolicy manner);
  // Who of them gives no sign of life is lost.
  void lose_silent(Inboxes& inboxes, std::vector<int> waiting, const std::string& during);
  // Without the answers that are none, whose senders are lost.
  ByRank sound(ByRank answers, const ByRank& commands, const std::string& during);
  void read_answers(int rank, const std::string& during, Inboxes& inboxes);

  Listener listener_;
  std::string program_;
  JobStep step_;
  comm::StepSecret secret_;
  std::chrono::milliseconds grace_;
  std::uint64_t last_id_ = 0;
  std::map<int, Hello> present_;
  std::map<int, double> clock_offsets_;
  std::map<int, Channel> channels_;  // of those not lost
  // Of the others, open until the end: a task that sees its connection close ends, and mpirun ends
  // all tasks, the leader too, with the first that ends with an error.
  std::vector<Channel> lost_channels_;
  std::vector<std::string> refusals_;
  Progress progress_;  // of the roll call
  std::size_t turned_away_ = 0;
  std::vector<LostTask> lost_;
};

}  // namespace ddp::check
