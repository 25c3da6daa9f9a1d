// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/tcp/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/errors.h"
#include "ddp_runtime/comm/failure/hub_search.h"
#include "ddp_runtime/comm/peer_failure.h"

namespace ddp::comm {
namespace {

constexpr const char* kReceiver = "rendezvous";
constexpr std::chrono::seconds kLeaderAnswersWithin{10};
constexpr int kSilences = 3;
constexpr std::size_t kNamed = 8;  // of the missing ranks

std::uint16_t port_in(std::string_view text) {
  std::uint16_t port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port);
  return port;
}

using Joined = std::map<int, Caller>;

std::string who_is_missing(const TcpPlan& plan, const Joined& joined,
                           std::chrono::milliseconds timeout) {
  std::vector<int> missing;
  for (int rank = 1; rank < plan.ranks; ++rank) {
    if (!joined.contains(rank)) missing.push_back(rank);
  }
  const std::size_t all = missing.size();
  missing.resize(std::min(all, kNamed));
  return fmt::format(
      "{} of {} ranks did not connect to rank 0 at {}, port {}, within {} s: {}{}; they have not "
      "started, a firewall blocks that port, or the name means another machine there",
      all, plan.ranks, plan.leader, plan.port,
      std::chrono::duration_cast<std::chrono::seconds>(timeout).count(), fmt::join(missing, ", "),
      all > kNamed ? ", ..." : "");
}

void tell_all(Joined& joined, const std::vector<Message>& messages) {
  for (auto& [rank, caller] : joined) {
    for (const auto& message : messages) caller.connection.send(message);
  }
  for (auto& [rank, caller] : joined) caller.connection.flush_within(kLeaderAnswersWithin);
}

std::vector<Message> parts_of(const std::string& text) {
  std::vector<Message> parts;
  for (std::size_t begin = 0; begin < text.size(); begin += kMaxText) {
    parts.push_back({MessageKind::directory, 0, text.substr(begin, kMaxText)});
  }
  parts.push_back({MessageKind::directory, 1, ""});  // the end
  return parts;
}

// Rank 0's part.
Directory lead(Switchboard& switchboard, const TcpPlan& plan, std::chrono::milliseconds timeout) {
  const auto mailbox = switchboard.mailbox(kReceiver);
  const Deadline deadline = Clock::now() + timeout;
  Joined joined;
  Directory directory(static_cast<std::size_t>(plan.ranks));
  directory[0] = {plan.leader, plan.port};
  while (static_cast<int>(joined.size()) + 1 < plan.ranks && Clock::now() < deadline) {
    for (auto& caller : mailbox->take_before(deadline)) {
      const int rank = caller.rank;
      const auto peer = caller.connection.peer();
      if (rank == 0 || !peer) continue;
      directory[static_cast<std::size_t>(rank)] = {peer->host, port_in(caller.remark)};
      joined.insert_or_assign(rank, std::move(caller));
    }
  }
  if (static_cast<int>(joined.size()) + 1 < plan.ranks) {
    const auto text = who_is_missing(plan, joined, timeout);
    tell_all(joined, {{MessageKind::failure, 0, text}});
    throw RuntimeError(text);
  }
  tell_all(joined, parts_of(text_of(directory)));
  return directory;
}

// The part of the others.
Directory join(const Switchboard& switchboard, const TcpPlan& plan, const FailureState& failures,
               std::chrono::milliseconds timeout) {
  const HubAddress leader{{plan.leader}, plan.port, plan.leader};
  const auto who = fmt::format("{} {}", kReceiver, switchboard.port());
  const Deadline deadline = Clock::now() + timeout;
  const auto slice = std::min<std::chrono::milliseconds>(timeout, kLeaderAnswersWithin);
  Reached reached;
  int silences = 0;
  // Rank 0 may start much later. A stranger at its port does not make room for it.
  while (!reached.connection && !reached.stranger && silences < kSilences &&
         Clock::now() < deadline) {
    reached = reach_hub(leader, {plan.key, plan.rank, who}, {slice, slice}, failures);
    silences = reached.silent ? silences + 1 : 0;
  }
  if (!reached.connection) {
    // Rank 0 also closes the connection of a second process with the same rank.
    const bool refused = reached.silent && !reached.stranger;
    throw RuntimeError(why_unreachable(leader, reached) +
                       (refused ? fmt::format(", or another process has connected as rank {}: each "
                                              "needs a RANK of its own",
                                              plan.rank)
                                : ""));
  }
  auto& connection = *reached.connection;
  const auto at = connection.peer();
  std::string text;
  // Rank 0 has the same limit, and tells what it has waited for.
  while (const auto message = connection.await(timeout + kLeaderAnswersWithin)) {
    if (message->kind == MessageKind::failure) throw PeerFailure(0, message->text, false);
    if (message->kind != MessageKind::directory) continue;
    text += message->text;
    if (message->rank == 0) continue;
    auto directory = directory_of(text);
    if (static_cast<int>(directory.size()) != plan.ranks) break;
    if (at) directory[0].host = at->host;
    return directory;
  }
  throw RuntimeError(
      fmt::format("rank 0 at {}, port {}, ended before all {} ranks had connected to it",
                  plan.leader, plan.port, plan.ranks));
}

}  // namespace

Listener listen_for_ranks(const TcpPlan& plan) {
  if (plan.rank != 0) return listen_anywhere();
  Listener listener = open_listener(plan.port);
  if (!listener.socket) {
    throw RuntimeError(fmt::format(
        "rank 0 cannot listen at port {} of the launch plan: {}; start the step again, which then "
        "gets another port, or set MASTER_PORT",
        plan.port, std::strerror(errno)));
  }
  return listener;
}

Directory meet(Switchboard& switchboard, const TcpPlan& plan, const FailureState& failures,
               std::chrono::milliseconds timeout) {
  return plan.rank == 0 ? lead(switchboard, plan, timeout)
                        : join(switchboard, plan, failures, timeout);
}

std::string text_of(const Directory& directory) {
  std::string text;
  for (const auto& at : directory) text += fmt::format("{} {}\n", at.host, at.port);
  return text;
}

Directory directory_of(const std::string& text) {
  Directory directory;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const auto line = rest.substr(0, end);
    const auto space = line.find(' ');
    if (end == std::string_view::npos || space == std::string_view::npos) {
      throw RuntimeError("rank 0 has sent a malformed list of the ranks' addresses");
    }
    directory.push_back({std::string(line.substr(0, space)), port_in(line.substr(space + 1))});
    rest.remove_prefix(end + 1);
  }
  return directory;
}

}  // namespace ddp::comm
