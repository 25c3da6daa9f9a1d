#include "ddp_runtime/check/net/step/leader.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

namespace ddp::check {
namespace {

// Strangers may connect to any port; only so many may sit there without having said hello.
constexpr std::size_t kMostStrangers = 64;
// Of a long wait, before the silent are asked for a sign of life.
constexpr int kGracesBetweenSigns = 2;
constexpr std::size_t kFewTasks = 16;  // of which each report is a line
// For the verdict to a task that did not answer: what fits into the buffers of its connection.
constexpr std::chrono::milliseconds kLostPatience{50};

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Deadline in(std::chrono::milliseconds patience) {
  return Clock::now() + patience;
}

}  // namespace

Leader::Leader(Listener listener, std::string program, std::string identity,
               std::chrono::milliseconds grace)
    : listener_(std::move(listener)),
      program_(std::move(program)),
      identity_(std::move(identity)),
      grace_(grace) {}

void Leader::roll_call(int expected, Deadline deadline, const Progress& progress) {
  std::vector<Channel> pending;
  const auto all = static_cast<std::size_t>(expected);
  std::size_t told = 0;
  while (present_.size() < all) {
    std::vector<pollfd> entries{{listener_.socket.get(), POLLIN, 0}};
    for (const auto& channel : pending) entries.push_back({channel->fd(), POLLIN, 0});
    const int ready = poll(entries.data(), entries.size(), milliseconds_until(deadline));
    if (ready == 0 || Clock::now() >= deadline) break;
    if ((entries[0].revents & POLLIN) != 0) accept_task(pending, all + kMostStrangers);
    std::erase_if(pending, [this](Channel& channel) { return greet(channel); });
    const std::size_t before = std::exchange(told, present_.size());
    // Of many tasks a line for each tenth of them.
    const bool tell = all <= kFewTasks ? told != before : 10 * told / all != 10 * before / all;
    if (tell) {
      progress(fmt::format("{} of {} tasks have reported", present_.size(), expected));
    }
  }
}

void Leader::accept_task(std::vector<Channel>& pending, std::size_t most) {
  auto socket = accept_until(listener_, Clock::now());
  if (socket && pending.size() < most) {
    pending.push_back(std::make_unique<ControlChannel>(std::move(*socket)));
  }
}

bool Leader::greet(Channel& channel) {
  try {
    const bool open = channel->fill();
    const auto message = channel->next();
    if (!message) return !open;
    const Hello hello = hello_from(*message);
    const std::string refusal = refusal_of(hello);
    if (!refusal.empty()) {
      refusals_.push_back(refusal);
      channel->send({{"refused", refusal}}, in(kSendPatience));
      return true;
    }
    channel->send({{"welcome", hello.rank}}, in(kSendPatience));
    clock_offsets_[hello.rank] = hello.unix_time - unix_now();
    present_.emplace(hello.rank, hello);
    channels_.emplace(hello.rank, std::move(channel));
  } catch (const NetError&) {
    // A stranger, or a task that left again: it will be missing.
  } catch (const nlohmann::json::exception&) {
    // Likewise.
  }
  return true;
}

std::string Leader::refusal_of(const Hello& hello) const {
  if (hello.identity != identity_) {
    return fmt::format("{} belongs to another job step ({})", hello.node, hello.identity);
  }
  if (hello.program != program_) {
    return fmt::format("{} runs {}, the leader runs {}", hello.node, hello.program, program_);
  }
  if (present_.contains(hello.rank)) {
    return fmt::format("{} reported as rank {}, which {} is already", hello.node, hello.rank,
                       present_.at(hello.rank).node);
  }
  return {};
}

void Leader::lose(int rank, const std::string& during, const std::string& why) {
  const auto channel = channels_.find(rank);
  if (channel == channels_.end()) return;
  lost_channels_.push_back(std::move(channel->second));
  channels_.erase(channel);
  lost_.push_back({rank, present_.at(rank).node, during, why});
}

std::uint64_t Leader::send_orders(const ByRank& orders, const std::string& during) {
  const std::uint64_t id = ++last_id_;
  for (const auto& [rank, order] : orders) {
    if (!reachable(rank)) continue;
    nlohmann::json message = order;
    message["id"] = id;
    try {
      channels_.at(rank)->send(message, in(kSendPatience));
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
      (*message)["arrival_time"] = unix_now();
      // Answers to earlier orders come from tasks that were slow then.
      const auto inbox = inboxes.find(message->at("id").get<std::uint64_t>());
      if (inbox != inboxes.end()) inbox->second[rank] = std::move(*message);
    }
    if (!open) lose(rank, during, "its process ended or its connection broke");
  } catch (const NetError& error) {
    lose(rank, during, error.what());
  } catch (const nlohmann::json::exception&) {
    lose(rank, during, "it sent something that is no answer");
  }
}

void Leader::gather(Inboxes& inboxes, std::uint64_t id, std::vector<int>& waiting,
                    const std::string& during, Deadline deadline, Manner manner) {
  const std::size_t lost_before = lost_.size();
  while (true) {
    if (manner == Manner::together && lost_.size() > lost_before) {
      deadline = std::min(deadline, in(std::chrono::milliseconds(0)));
    }
    std::erase_if(waiting,
                  [&](int rank) { return inboxes.at(id).contains(rank) || !reachable(rank); });
    if (waiting.empty()) return;
    std::vector<pollfd> entries;
    entries.reserve(waiting.size());
    for (const int rank : waiting) entries.push_back({channels_.at(rank)->fd(), POLLIN, 0});
    const int ready = poll(entries.data(), entries.size(), milliseconds_until(deadline));
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
  gather(inboxes, id, waiting, during, in(grace_), Manner::each_alone);
  inboxes.erase(id);
  for (const int rank : waiting) lose(rank, during, "it stopped answering");
}

ByRank Leader::ask(const ByRank& orders, const std::string& during,
                   std::chrono::milliseconds patience) {
  return ask(orders, during, patience, Manner::each_alone);
}

// A long wait is cut into pieces, with a sign of life from the silent in between: SLURM ends the
// whole step within a minute after a node has vanished, and by then the check must have said which.
ByRank Leader::ask(const ByRank& orders, const std::string& during,
                   std::chrono::milliseconds patience, Manner manner) {
  std::vector<int> waiting;
  for (const auto& [rank, order] : orders) waiting.push_back(rank);
  const std::size_t lost_before = lost_.size();
  const std::uint64_t id = send_orders(orders, during);
  Inboxes inboxes{{id, {}}};
  const Deadline end = in(patience);
  const auto in_vain = [&] { return manner == Manner::together && lost_.size() > lost_before; };
  while (!waiting.empty()) {
    gather(inboxes, id, waiting, during,
           in_vain() ? Clock::now() : std::min(end, in(kGracesBetweenSigns * grace_)), manner);
    if (waiting.empty()) break;
    if (in_vain() || Clock::now() >= end) {
      ByRank answers = std::move(inboxes.at(id));
      inboxes.clear();  // what comes now is too late
      lose_silent(inboxes, waiting, during);
      return answers;
    }
    lose_silent(inboxes, waiting, during);
  }
  return std::move(inboxes.at(id));
}

ByRank Leader::ask_all(const nlohmann::json& order, const std::string& during,
                       std::chrono::milliseconds patience) {
  ByRank orders;
  for (const auto& [rank, channel] : channels_) orders[rank] = order;
  return ask(orders, during, patience, Manner::together);
}

void Leader::dismiss(const nlohmann::json& verdict) {
  const auto tell = [&verdict](ControlChannel& channel, std::chrono::milliseconds patience) {
    try {
      channel.send(verdict, in(patience));
    } catch (const NetError&) {
      return;  // it is gone already
    }
  };
  for (const auto& [rank, channel] : channels_) tell(*channel, kSendPatience);
  for (const auto& channel : lost_channels_) tell(*channel, kLostPatience);
  channels_.clear();
  lost_channels_.clear();
}

}  // namespace ddp::check
