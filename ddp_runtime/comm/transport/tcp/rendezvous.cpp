// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/tcp/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <utility>

#include "base/deadline.h"
#include "base/descriptor_limit.h"
#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/comm/failure/hub_search.h"
#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::comm {
namespace {

constexpr const char* kReceiver = "rendezvous";
constexpr std::chrono::seconds kLeaderAnswersWithin{10};
constexpr int kSilences = 3;       // also of name servers
constexpr std::size_t kNamed = 8;  // of the missing ranks
constexpr std::chrono::milliseconds kSlow{30'000};

constexpr std::size_t kMaxHosts = 4;  // of a rank
constexpr std::chrono::milliseconds kBetweenLooks{500};

// What each rank tells rank 0 besides its number.
struct Introduction {
  int ranks = 0;  // which it expects
  Place place;
};

std::string text_of(const Introduction& own) {
  return fmt::format("{} {} {}", own.ranks, own.place.port, fmt::join(own.place.hosts, " "));
}

Introduction introduction_of(const std::string& text) {
  std::istringstream words(text);
  Introduction other;
  words >> other.ranks >> other.place.port;
  for (std::string host; other.place.hosts.size() < kMaxHosts && words >> host;) {
    other.place.hosts.push_back(host);
  }
  return other;
}

// The addresses of this machine at which other machines may reach it.
std::vector<std::string> hosts_of_this_machine() {
  auto hosts = numeric(own_addresses());
  std::erase_if(hosts, is_loopback);
  hosts.resize(std::min(hosts.size(), kMaxHosts));
  return hosts;
}

// Where rank 0 sees the rank, and then what the rank says of itself.
Place place_of(const std::string& seen, Place told) {
  std::erase(told.hosts, seen);
  told.hosts.insert(told.hosts.begin(), seen);
  return told;
}

using Joined = std::map<int, Caller>;

// Says once that ranks wait, if they have waited for long.
class SlowWait {
 public:
  SlowWait(const FailureState& failures, std::chrono::milliseconds timeout)
      : failures_(failures),
        timeout_(timeout),
        slow_(Clock::now() + std::min(kSlow, timeout / 4)) {}

  void tell(const std::function<std::string()>& what) {
    if (told_ || Clock::now() < slow_) return;
    told_ = true;
    failures_.report_slow_wait(
        fmt::format("{}; waiting for at most {} s", what(),
                    std::chrono::ceil<std::chrono::seconds>(timeout_).count()));
  }

 private:
  const FailureState& failures_;
  std::chrono::milliseconds timeout_;
  Deadline slow_;
  bool told_ = false;
};

// `within`: " within 600 s", or nothing yet.
std::string who_is_missing(const TcpPlan& plan, const Joined& joined, const std::string& within) {
  std::vector<int> missing;
  for (int rank = 1; rank < plan.ranks; ++rank) {
    if (!joined.contains(rank)) missing.push_back(rank);
  }
  const std::size_t all = missing.size();
  missing.resize(std::min(all, kNamed));
  return fmt::format("{} of {} ranks did not connect to rank 0 at {}, port {}{}: {}{}", all,
                     plan.ranks, plan.leader, plan.port, within, fmt::join(missing, ", "),
                     all > kNamed ? ", ..." : "");
}

std::string why_ranks_are_missing(const TcpPlan& plan, const Joined& joined,
                                  const Switchboard::Unproved& unproved,
                                  std::chrono::milliseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout).count();
  auto text = who_is_missing(plan, joined, fmt::format(", within {} s", seconds)) +
              "; they have not started, a firewall blocks that port, or the name means another "
              "machine there";
  if (unproved.times > 0) {
    text += fmt::format(
        "; {} connections, the last from {}, did not prove that they have the job's "
        "key: a rank there may have another one",
        unproved.times, unproved.last);
  }
  return text;
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
class Leader {
 public:
  Leader(Switchboard& switchboard, const TcpPlan& plan)
      : switchboard_(switchboard), plan_(plan), mailbox_(switchboard.mailbox(kReceiver)) {
    directory_.resize(static_cast<std::size_t>(plan.ranks));
    directory_[0] = {{plan.leader}, plan.port};
  }

  Directory lead(const FailureState& failures, std::chrono::milliseconds timeout) {
    const Deadline deadline = Clock::now() + timeout;
    SlowWait slow(failures, timeout);
    while (missing() > 0 && Clock::now() < deadline) {
      const Deadline look = std::min(deadline, Clock::now() + kBetweenLooks);
      for (auto& caller : mailbox_->take_before(look)) take(std::move(caller));
      forget_the_gone();
      if (missing() > 0) slow.tell([&] { return who_is_missing(plan_, joined_, " yet"); });
      if (switchboard_.out_of_descriptors()) {
        fail(out_of_descriptors(missing(), directory_.size() - 1));
      }
    }
    if (missing() > 0) {
      fail(why_ranks_are_missing(plan_, joined_, switchboard_.unproved(), timeout));
    }
    tell_all(joined_, parts_of(text_of(directory_)));
    return std::move(directory_);
  }

 private:
  std::size_t missing() const { return directory_.size() - 1 - joined_.size(); }

  void take(Caller caller) {
    const int rank = caller.rank;
    const auto peer = caller.connection.peer();
    if (rank == 0 || !peer) return;
    const auto introduction = introduction_of(caller.remark);
    joined_.insert_or_assign(rank, std::move(caller));
    if (introduction.ranks != plan_.ranks || rank >= plan_.ranks) {
      fail(
          fmt::format("rank {} at {} was started as one of {} ranks, and rank 0 as one of {}: "
                      "start all ranks with the same plan (WORLD_SIZE, MASTER_PORT)",
                      rank, peer->host, introduction.ranks, plan_.ranks));
    }
    directory_[static_cast<std::size_t>(rank)] = place_of(peer->host, introduction.place);
  }

  // One that has ended meanwhile may be started again.
  void forget_the_gone() {
    for (auto each = joined_.begin(); each != joined_.end();) {
      if (each->second.connection.fill()) {
        ++each;
      } else {
        mailbox_->forget(each->first);
        each = joined_.erase(each);
      }
    }
  }

  [[noreturn]] void fail(const std::string& text) {
    tell_all(joined_, {{MessageKind::failure, 0, text}});
    throw RuntimeError(text);
  }

  Switchboard& switchboard_;
  const TcpPlan& plan_;
  std::shared_ptr<Mailbox> mailbox_;
  Joined joined_;
  Directory directory_;
};

std::string why_not_reached(const TcpPlan& plan, const HubAddress& leader, const Reached& reached) {
  std::string text = why_unreachable(leader, reached);
  if (reached.stranger) return text;
  if (reached.silent) {  // rank 0 also closes the connection of a second process with the same rank
    return fmt::format(
        "{}, or another process has connected as rank {}: each needs a RANK of its own", text,
        plan.rank);
  }
  if (!addresses_of(plan.leader).empty()) return text;
  return fmt::format(
      "MASTER_ADDR={} is unknown on this machine: give a name or an address of rank 0's "
      "machine that each node knows",
      quote_for_display(plan.leader));
}

// The part of the others.
Directory join(const Switchboard& switchboard, const TcpPlan& plan, const FailureState& failures,
               std::chrono::milliseconds timeout) {
  const HubAddress leader{{plan.leader}, plan.port, plan.leader};
  const Introduction own{plan.ranks, {hosts_of_this_machine(), switchboard.port()}};
  const auto who = text_of(Call{kReceiver, 0, text_of(own)});
  const Deadline deadline = Clock::now() + timeout;
  const auto slice = std::min<std::chrono::milliseconds>(timeout, kLeaderAnswersWithin);
  Reached reached;
  SlowWait slow(failures, timeout);
  int silences = 0;
  int unknowns = 0;
  // Rank 0 may start much later. A stranger at its port does not make room for it, and an unknown
  // name stays unknown.
  while (!reached.connection && !reached.stranger && silences < kSilences && unknowns < kSilences &&
         Clock::now() < deadline) {
    reached = reach_hub(leader, {plan.key, plan.rank, who}, {slice, slice}, failures);
    if (reached.connection) break;
    silences = reached.silent ? silences + 1 : 0;
    unknowns = addresses_of(plan.leader).empty() ? unknowns + 1 : 0;
    if (plan.rank > static_cast<int>(kNamed)) continue;
    slow.tell([&] {
      return fmt::format("rank {}: {}", plan.rank, why_not_reached(plan, leader, reached));
    });
  }
  if (!reached.connection) throw RuntimeError(why_not_reached(plan, leader, reached));
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
    if (at) correct_loopbacks(directory, at->host);
    return directory;
  }
  throw RuntimeError(fmt::format(
      "rank 0 at {}, port {}, closed the connection before all {} ranks had connected to "
      "it: it has ended, or another process has connected as rank {}",
      plan.leader, plan.port, plan.ranks, plan.rank));
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
  return plan.rank == 0 ? Leader(switchboard, plan).lead(failures, timeout)
                        : join(switchboard, plan, failures, timeout);
}

void correct_loopbacks(Directory& directory, const std::string& leader) {
  directory[0].hosts = {leader};
  if (is_loopback(leader)) return;
  for (auto& place : directory) {
    std::replace_if(place.hosts.begin(), place.hosts.end(), is_loopback, leader);
  }
}

std::string text_of(const Directory& directory) {
  std::string text;
  for (const auto& at : directory)
    text += fmt::format("{} {}\n", at.port, fmt::join(at.hosts, " "));
  return text;
}

Directory directory_of(const std::string& text) {
  Directory directory;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Place place;
    words >> place.port;
    for (std::string host; words >> host;) place.hosts.push_back(host);
    if (place.port == 0 || place.hosts.empty()) {
      throw RuntimeError("rank 0 has sent a malformed list of the ranks' addresses");
    }
    directory.push_back(std::move(place));
  }
  return directory;
}

}  // namespace ddp::comm
