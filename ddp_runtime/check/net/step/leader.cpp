// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/leader.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/host.h"
#include "base/text.h"
#include "ddp_runtime/check/findings/node_name.h"
#include "ddp_runtime/check/net/measure/answers.h"

namespace ddp::check {
namespace {

// Limit on connections that have not sent a hello, because any process may connect to the port.
constexpr std::size_t kMaxPendingConnections = 64;
constexpr std::size_t kMaxAtOnce =
    64;  // connections accepted before existing ones are served again
constexpr std::size_t kMaxRefusals = 16;
// Size limit of a hello if no proof is required.
constexpr std::size_t kMaxUnprovenBytes = std::size_t{1} << 18;
// Time limit for each message of a connecting process. A slower task tries again.
constexpr std::chrono::seconds kStrangersTimeout{2};
constexpr std::size_t kMaxRefusalCharacters = 200;
// Silent tasks are pinged after this many grace periods.
constexpr int kGracesBetweenSigns = 2;
constexpr std::size_t kFewTasks = 16;  // up to this many tasks, each report gets a line
// Time limit for sending the verdict to a lost task, just enough for data that fits into the
// connection's buffers.
constexpr std::chrono::milliseconds kLostTimeout{50};

constexpr const char* kNoAnswer = "it sent an invalid answer";

Deadline in(std::chrono::milliseconds timeout) {
  return Clock::now() + timeout;
}

}  // namespace

Leader::Leader(Listener listener, std::string program, JobStep step, comm::StepSecret secret,
               std::chrono::milliseconds grace)
    : listener_(std::move(listener)),
      program_(std::move(program)),
      step_(std::move(step)),
      secret_(std::move(secret)),
      grace_(grace) {}

void Leader::roll_call(int expected, Deadline deadline, const Progress& progress) {
  progress_ = progress;
  Callers callers;
  const auto all = static_cast<std::size_t>(expected);
  std::size_t told = 0;
  while (present_.size() < all && Clock::now() < deadline) {
    std::vector<pollfd> entries{{listener_.socket.get(), POLLIN, 0}};
    Deadline next = deadline;
    for (const auto& caller : callers) {
      entries.push_back({caller.channel->fd(), POLLIN, 0});
      next = std::min(next, caller.until);
    }
    const auto suspended_before = suspended();
    wait_until(entries, next);
    deadline += suspended() - suspended_before;
    std::size_t entry = 0;
    std::erase_if(callers,
                  [&](Caller& caller) { return entries[++entry].revents != 0 && hear(caller); });
    if ((entries[0].revents & POLLIN) != 0) accept_callers(callers, all + kMaxPendingConnections);
    drop_expired(callers);
    const std::size_t before = std::exchange(told, present_.size());
    // With many tasks, prints one line per tenth of them.
    const bool tell = all <= kFewTasks ? told != before : 10 * told / all != 10 * before / all;
    if (tell) {
      progress(fmt::format("{} of {} tasks have reported", present_.size(), expected));
    }
  }
  // If tasks are missing, the port stays open, but no more connections are accepted.
  if (present_.size() >= all) listener_.socket.close();
}

// A task sends as soon as it is connected, so if there are too many connections, the connection
// that has been silent longest is closed.
void Leader::accept_callers(Callers& callers, std::size_t most) {
  for (std::size_t n = 0; n < kMaxAtOnce; ++n) {
    auto socket = accept_until(listener_, Clock::now());
    if (!socket) return;
    Caller caller{};
    caller.channel = std::make_unique<ControlChannel>(std::move(*socket));
    caller.until = in(kStrangersTimeout);
    caller.channel->accept_at_most(kMaxFirstBytes);
    if (hear(caller)) continue;
    callers.push_back(std::move(caller));
    if (callers.size() <= most) continue;
    const auto unknown = std::find_if(callers.begin(), callers.end(),
                                      [](const Caller& c) { return !c.presentation; });
    callers.erase(unknown == callers.end() ? callers.begin() : unknown);
  }
}

void Leader::drop_expired(Callers& callers) const {
  const auto now = Clock::now();
  std::erase_if(callers, [now](const Caller& caller) { return now >= caller.until; });
}

bool Leader::hear(Caller& caller) {
  try {
    const bool open = caller.channel->fill();
    while (const auto message = caller.channel->next()) {
      caller.until = in(kStrangersTimeout);
      if (take(caller, *message)) return true;
    }
    return !open;
  } catch (const NetError&) {
    return true;  // an unrelated program, or a task that disconnected and will be missing
  } catch (const nlohmann::json::exception&) {
    return true;  // as above
  }
}

bool Leader::take(Caller& caller, const nlohmann::json& message) {
  if (!caller.presentation) return take_presentation(caller, message);
  return caller.believed ? take_hello(caller, message) : take_proof(caller, message);
}

bool Leader::take_presentation(Caller& caller, const nlohmann::json& message) {
  const Presentation& task = caller.presentation.emplace(presentation_from(message));
  const std::string own = comm::name_of(secret_.source());
  std::string refusal;
  if (task.identity != step_.identity) {
    refusal = fmt::format("{} belongs to another job step ({})", task.node, task.identity);
  } else if (task.key != own) {
    refusal = fmt::format("{} has a key from: {}, but the leader from: {}; see --key", task.node,
                          task.key, own);
  } else if (!secret_) {
    caller.believed = true;
    caller.channel->accept_at_most(kMaxUnprovenBytes);
    refusal = refusal_of(task);
  } else {
    caller.meeting = meeting_of(task, random_nonce());
    caller.channel->send(challenge_of(secret_, caller.meeting), in(kSendTimeout));
  }
  if (refusal.empty()) return false;
  refuse(caller, refusal);
  return true;
}

bool Leader::take_proof(Caller& caller, const nlohmann::json& message) {
  const auto& meeting = caller.meeting;
  const std::string proof = message.at("proof");
  if (!is_proof(proof, secret_.key(), meeting, Side::caller)) return true;
  caller.believed = true;
  caller.channel->accept_at_most(ControlChannel::kMaxBytes);
  caller.channel->seal(session_key(secret_.key(), meeting, Side::listener),
                       session_key(secret_.key(), meeting, Side::caller));
  const std::string refusal = refusal_of(*caller.presentation);
  if (refusal.empty()) return false;
  refuse(caller, refusal);
  return true;
}

bool Leader::take_hello(Caller& caller, const nlohmann::json& message) {
  Hello hello = hello_from(message);
  const Presentation& task = *caller.presentation;
  if (hello.rank != task.rank || hello.node != task.node) return true;
  if (const std::string refusal = refusal_of(task); !refusal.empty()) {
    refuse(caller, refusal);
    return true;
  }
  // Other tasks connect to this address.
  if (!secret_ && !hello.address.empty()) hello.address = remote_address(caller.channel->fd());
  caller.channel->accept_at_most(ControlChannel::kMaxBytes);
  caller.channel->send({{"welcome", hello.rank}}, in(kSendTimeout));
  clock_offsets_[hello.rank] = hello.unix_time - unix_seconds();
  channels_.emplace(hello.rank, std::move(caller.channel));
  present_.emplace(hello.rank, std::move(hello));
  return true;
}

// Any process that reaches the port can cause a refusal, so the number and the length of stored
// refusals are limited.
void Leader::refuse(Caller& caller, const std::string& why) {
  const std::string text = sanitize_lines(why, kMaxRefusalCharacters);
  if (++turned_away_ <= kMaxRefusals) {
    progress_("rejected: " + text);
    if (caller.believed || !secret_) refusals_.push_back(text);
  }
  // Does not wait, because the receiver may never read the message.
  caller.channel->send({{"refused", text}}, in(std::chrono::milliseconds(0)));
}

std::string Leader::refusal_of(const Presentation& task) const {
  if (task.program != program_) {
    return fmt::format("{} runs {}, but the leader runs {}", task.node, task.program, program_);
  }
  if (task.rank < 0 || task.rank >= step_.size) {
    return fmt::format("{} reported as rank {} of a step of {} tasks", task.node, task.rank,
                       step_.size);
  }
  if (std::string problem = misplaced(task); !problem.empty()) return problem;
  if (present_.contains(task.rank)) {
    return fmt::format("{} reported as rank {}, but {} already has this rank", task.node, task.rank,
                       present_.at(task.rank).node);
  }
  return {};
}

// Returns the problem with the node on which a task claims to run; empty if it is valid. Nodes
// outside the step must never appear in a verdict, because an administrator may drain the nodes in
// it.
std::string Leader::misplaced(const Presentation& task) const {
  if (!is_node_name(task.node)) return fmt::format("'{}' is not a node name", task.node);
  if (step_.nodes.empty()) return {};  // the launcher did not list the nodes
  const auto node = std::find_if(step_.nodes.begin(), step_.nodes.end(),
                                 [&](const ExpectedNode& n) { return n.name == task.node; });
  if (node == step_.nodes.end()) {
    return fmt::format("rank {} reported from {}, which is not a node of this step", task.rank,
                       task.node);
  }
  const auto there = std::count_if(present_.begin(), present_.end(), [&](const auto& other) {
    return other.first != task.rank && other.second.node == task.node;
  });
  if (there < node->tasks) return {};
  return fmt::format(
      "rank {} reported from {}, but all tasks of this node ({}) have already reported", task.rank,
      task.node, node->tasks);
}

void Leader::lose(int rank, const std::string& during, const std::string& why) {
  const auto channel = channels_.find(rank);
  if (channel == channels_.end()) return;
  lost_channels_.push_back(std::move(channel->second));
  channels_.erase(channel);
  lost_.push_back({rank, present_.at(rank).node, during, why});
}

std::uint64_t Leader::send_orders(const ByRank& commands, const std::string& during) {
  const std::uint64_t id = ++last_id_;
  for (const auto& [rank, command] : commands) {
    if (!reachable(rank)) continue;
    nlohmann::json message = command;
    message["id"] = id;
    try {
      channels_.at(rank)->send(message, in(kSendTimeout));
    } catch (const NetError& error) {
      lose(rank, during, error.what());
    }
  }
  return id;
}

void Leader::read_answers(int rank, const std::string& during, Inboxes& inboxes) {
  ControlChannel& channel = *channels_.at(rank);
  try {
    const bool open = channel.fill();
    while (auto message = channel.next()) {
      (*message)["arrival_time"] = unix_seconds();
      // Answers to earlier commands come from tasks that were slow at the time.
      const auto inbox = inboxes.find(message->at("id").get<std::uint64_t>());
      if (inbox != inboxes.end()) inbox->second[rank] = std::move(*message);
    }
    if (!open) lose(rank, during, "its process exited or its connection broke");
  } catch (const NetError& error) {
    lose(rank, during, error.what());
  } catch (const nlohmann::json::exception&) {
    lose(rank, during, kNoAnswer);
  }
}

int Leader::wait_until(std::vector<pollfd>& entries, Deadline& deadline) {
  auto suspended_before = suspended();
  while (true) {
    const int ready = poll(entries.data(), entries.size(), milliseconds_until(deadline));
    const auto suspended_now = suspended();
    deadline += suspended_now - std::exchange(suspended_before, suspended_now);
    if (ready != 0 || Clock::now() >= deadline) return ready;
  }
}

void Leader::gather(Inboxes& inboxes, std::uint64_t id, std::vector<int>& waiting,
                    const std::string& during, Deadline deadline, WaitPolicy manner) {
  const std::size_t lost_before = lost_.size();
  while (true) {
    if (manner == WaitPolicy::together && lost_.size() > lost_before) {
      deadline = std::min(deadline, in(std::chrono::milliseconds(0)));
    }
    std::erase_if(waiting,
                  [&](int rank) { return inboxes.at(id).contains(rank) || !reachable(rank); });
    if (waiting.empty()) return;
    std::vector<pollfd> entries;
    entries.reserve(waiting.size());
    for (const int rank : waiting) entries.push_back({channels_.at(rank)->fd(), POLLIN, 0});
    const int ready = wait_until(entries, deadline);
    for (std::size_t i = 0; ready > 0 && i < entries.size(); ++i) {
      if (entries[i].revents != 0) read_answers(waiting[i], during, inboxes);
    }
    if (Clock::now() >= deadline && ready <= 0) return;
  }
}

void Leader::lose_silent(Inboxes& inboxes, std::vector<int> waiting, const std::string& during) {
  ByRank pings;
  for (const int rank : waiting) pings[rank] = {{"do", "ping"}};
  const std::uint64_t id = send_orders(pings, during);
  inboxes[id];
  gather(inboxes, id, waiting, during, in(grace_), WaitPolicy::each_alone);
  inboxes.erase(id);
  for (const int rank : waiting) lose(rank, during, "it stopped answering");
}

ByRank Leader::ask(const ByRank& commands, const std::string& during,
                   std::chrono::milliseconds timeout) {
  return ask(commands, during, timeout, WaitPolicy::each_alone);
}

// Splits a long wait into pieces and pings silent tasks between them. SLURM terminates the whole
// step within a minute after a node has vanished, so the check must report the node before that.
ByRank Leader::ask(const ByRank& commands, const std::string& during,
                   std::chrono::milliseconds timeout, WaitPolicy manner) {
  std::vector<int> waiting;
  for (const auto& [rank, command] : commands) waiting.push_back(rank);
  const std::size_t lost_before = lost_.size();
  const std::uint64_t id = send_orders(commands, during);
  Inboxes inboxes{{id, {}}};
  const auto suspended_before = suspended();
  const auto end = [this, suspended_before, planned = in(timeout)] {
    return planned + (suspended() - suspended_before);
  };
  const auto is_pointless = [&] {
    return manner == WaitPolicy::together && lost_.size() > lost_before;
  };
  while (!waiting.empty()) {
    gather(inboxes, id, waiting, during,
           is_pointless() ? Clock::now() : std::min(end(), in(kGracesBetweenSigns * grace_)),
           manner);
    if (waiting.empty()) break;
    if (is_pointless() || Clock::now() >= end()) {
      ByRank answers = sound(std::move(inboxes.at(id)), commands, during);
      inboxes.clear();  // ignore later answers
      lose_silent(inboxes, waiting, during);
      return answers;
    }
    lose_silent(inboxes, waiting, during);
  }
  return sound(std::move(inboxes.at(id)), commands, during);
}

ByRank Leader::sound(ByRank answers, const ByRank& commands, const std::string& during) {
  for (auto answer = answers.begin(); answer != answers.end();) {
    if (is_answer_to(commands.at(answer->first), answer->second)) {
      ++answer;
      continue;
    }
    lose(answer->first, during, kNoAnswer);
    answer = answers.erase(answer);
  }
  return answers;
}

ByRank Leader::ask_all(const nlohmann::json& command, const std::string& during,
                       std::chrono::milliseconds timeout) {
  ByRank commands;
  for (const auto& [rank, channel] : channels_) commands[rank] = command;
  return ask(commands, during, timeout, WaitPolicy::together);
}

void Leader::shut_down(const nlohmann::json& verdict) {
  const auto tell = [&verdict](ControlChannel& channel, std::chrono::milliseconds timeout) {
    try {
      channel.send(verdict, in(timeout));
    } catch (const NetError&) {
      return;  // it has disconnected already
    }
  };
  for (const auto& [rank, channel] : channels_) tell(*channel, kSendTimeout);
  for (const auto& channel : lost_channels_) tell(*channel, kLostTimeout);
  channels_.clear();
  lost_channels_.clear();
}

}  // namespace ddp::check
