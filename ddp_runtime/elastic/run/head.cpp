// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/head.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/descriptor_limit.h"
#include "base/errors.h"
#include "base/json/bounded_json.h"
#include "base/text.h"
#include "ddp_runtime/elastic/event_json.h"
#include "ddp_runtime/elastic/run/agent.h"

namespace ddp::elastic {
namespace {

// Three heartbeats may be late.
constexpr std::chrono::seconds kSuspectAfter{4};
// An agent says who it is at once; others are not kept.
constexpr std::chrono::seconds kGreetingTime{3};
constexpr std::chrono::seconds kLostAfter{10};
constexpr std::ptrdiff_t kMaxStrangers = 500;

bool is_for_agents(const Event& event) {
  return std::holds_alternative<RankReady>(event) || std::holds_alternative<RankEnded>(event) ||
         std::holds_alternative<Told>(event) || std::holds_alternative<Restoring>(event) ||
         std::holds_alternative<Training>(event) || std::holds_alternative<Progress>(event) ||
         std::holds_alternative<Kept>(event) || std::holds_alternative<RankSilent>(event) ||
         std::holds_alternative<RankAnswered>(event);
}

}  // namespace

Head::Head(const Key& key) : key_(key), listener_(listen_anywhere()) {
  raise_descriptor_limit();
}

std::string Head::address() const {
  return fmt::format("{}:{}", join(own_addresses(), ","), listener_.port);
}

std::vector<Event> Head::wait(Deadline deadline, std::span<const int> wakes) {
  bool woken = false;
  bool agent_left = false;
  do {
    std::vector<pollfd> ready;
    for (const int wake : wakes) ready.push_back({wake, POLLIN, 0});
    ready.push_back({listener_.socket.get(), POLLIN, 0});
    for (const auto& agent : agents_) ready.push_back({agent.connection.fd(), POLLIN, 0});
    poll(ready.data(), ready.size(), std::min(milliseconds_until(deadline), 200));
    clock_.look();
    accept_all();
    for (auto& agent : agents_) read(agent);
    std::erase_if(agents_, [&agent_left](const Agent& agent) {
      agent_left = agent_left || (agent.closed && agent.greeted);
      return agent.closed;
    });
    beat();
    watch();
    woken = std::any_of(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(wakes.size()),
                        [](const pollfd& wake) { return (wake.revents & POLLIN) != 0; });
  } while (!woken && !agent_left && events_.empty() && Clock::now() < deadline);
  return std::exchange(events_, {});
}

void Head::accept_all() {
  for (;;) {
    FileDescriptor socket(
        accept4(listener_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    Agent agent;
    agent.heard = clock_.now();
    agent.connection = Connection(std::move(socket));
    agent.connection.accept_at_most(kMaxGreeting);
    agents_.push_back(std::move(agent));
    limit_strangers();
  }
}

// Others may connect as often as they like, so only the newest may still say who they are.
void Head::limit_strangers() {
  auto strangers = std::ranges::count_if(
      agents_, [](const Agent& agent) { return !agent.greeted && !agent.closed; });
  for (auto& agent : agents_) {
    if (strangers <= kMaxStrangers) return;
    if (agent.greeted || agent.closed) continue;
    close(agent);
    --strangers;
  }
}

void Head::read(Agent& agent) {
  const bool open = agent.connection.fill();
  try {
    while (const auto message = agent.connection.next()) {
      agent.heard = clock_.now();
      if (agent.greeted) heard_[agent.node] = agent.heard;
      agent.greeted ? take(agent, *message) : greet(agent, *message);
      if (agent.closed) return;
    }
  } catch (const std::exception&) {
    return close(agent);  // not the protocol
  }
  if (!open) close(agent);
}

void Head::greet(Agent& agent, const Message& message) {
  if (!agent.greeting.challenged()) {
    const auto challenge = agent.greeting.challenge(message, key_);
    if (!challenge) return close(agent);
    agent.connection.send(*challenge);
    return;
  }
  if (!agent.greeting.accepts(message, key_)) return close(agent);
  const auto who = parse_bounded_json(agent.greeting.who());
  if (!who.is_object()) return close(agent);
  agent.rank = agent.greeting.rank();
  agent.generation = who.value("generation", 0);
  agent.node = who.value("node", "");
  agent.step = who.value("step", "");
  agent.greeted = true;
  const auto keys = agent.greeting.session(key_);
  agent.connection.seal(keys.of_hub, keys.of_rank);
  agent.connection.accept_at_most(kMaxText);
  agent.connection.send({MessageKind::welcome, agent.rank, ""});
  heard_[agent.node] = agent.heard;
  if (agent.generation == signaled_generation_) send_signal(agent, signal_);
}

void Head::send_signal(Agent& agent, int number) {
  agent.connection.send({MessageKind::status_request, 0, std::to_string(number)});
}

void Head::take(Agent& agent, const Message& message) {
  if (std::exchange(agent.suspected, false) && !agent.stopped) {
    events_.emplace_back(RankAnswered{agent.generation, agent.rank});
  }
  if (message.kind == MessageKind::goodbye) {
    agent.ended = true;
    return close(agent);
  }
  if (message.kind != MessageKind::status) return;
  auto event = event_from_json(parse_bounded_json(message.text));
  if (!is_for_agents(event)) return close(agent);
  if (std::holds_alternative<RankEnded>(event)) agent.ended = true;
  if (std::holds_alternative<RankSilent>(event)) agent.stopped = true;
  if (std::holds_alternative<RankAnswered>(event)) agent.stopped = false;
  events_.push_back(std::move(event));
}

// A connection that closes without a word belongs to an agent that was killed, and its program with
// it.
void Head::close(Agent& agent) {
  if (agent.closed) return;
  agent.closed = true;
  agent.connection.close();
  if (agent.greeted && !agent.ended) {
    events_.emplace_back(RankEnded{agent.generation, agent.rank, 0, SIGKILL, true});
  }
}

void Head::beat() {
  const auto now = Clock::now();
  if (now - beaten_ < kHeartbeat) return;
  beaten_ = now;
  for (auto& agent : agents_) {
    if (agent.greeted) agent.connection.send({MessageKind::alive, 0, ""});
  }
}

void Head::watch() {
  const auto now = clock_.now();
  std::set<std::pair<int, std::string>> silent;
  for (auto& agent : agents_) {
    if (agent.closed) continue;
    if (!agent.greeted) {
      if (now - agent.heard > kGreetingTime) close(agent);
      continue;
    }
    if (agent.ended || now - agent.heard < kSuspectAfter) continue;
    if (!agent.suspected) {
      agent.suspected = true;
      events_.emplace_back(RankSilent{agent.generation, agent.rank});
    }
    if (now - agent.heard > kLostAfter) silent.emplace(agent.generation, agent.node);
  }
  for (const auto& [generation, node] : silent) {
    if (!is_silent(node)) continue;
    events_.emplace_back(NodeLost{node, "no sign of life for 10 s"});
    for (auto& agent : agents_) {
      if (agent.node == node && agent.generation == generation) {
        agent.ended = true;
        close(agent);
      }
    }
  }
}

// Whether nothing was heard of any rank there, also of those that have ended since.
bool Head::is_silent(const std::string& node) const {
  const auto at = heard_.find(node);
  return at == heard_.end() || clock_.now() - at->second > kLostAfter;
}

void Head::signal(int generation, int number) {
  signaled_generation_ = generation;
  signal_ = number;
  for (auto& agent : agents_) {
    if (agent.greeted && agent.generation == generation) send_signal(agent, number);
  }
}

bool Head::has_agents(int generation) const {
  return std::ranges::any_of(agents_, [generation](const Agent& agent) {
    return agent.greeted && !agent.closed && agent.generation == generation;
  });
}

std::string Head::step_of(int generation) const {
  for (const auto& agent : agents_) {
    if (agent.greeted && agent.generation == generation && !agent.step.empty()) return agent.step;
  }
  return "";
}

void Head::forget(int generation) {
  for (auto& agent : agents_) {
    if (agent.greeted && agent.generation == generation) {
      agent.ended = true;
      close(agent);
    }
  }
}

}  // namespace ddp::elastic
