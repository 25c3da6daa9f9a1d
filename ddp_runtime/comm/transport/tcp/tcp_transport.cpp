// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/tcp/tcp_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/failure/hub_search.h"
#include "ddp_runtime/comm/transport/tcp/tcp_stream.h"

namespace ddp::comm {
namespace {

constexpr SearchLimits kConnect{std::chrono::seconds(10), std::chrono::seconds(30)};

// What all transports of this process share.
struct Exchange {
  TcpPlan plan;
  const FailureState& failures;
  Switchboard switchboard;
  Directory directory;

  Exchange(const TcpPlan& of, Listener listener, const FailureState& failed,
           std::chrono::milliseconds timeout)
      : plan(of),
        failures(failed),
        switchboard(std::move(listener), of.key, of.rank, of.ranks),
        directory(meet(switchboard, of, failed, timeout)) {}
};

std::string why_no_connection(const Place& at, const Reached& reached) {
  if (reached.stranger) return describe_stranger(*reached.stranger);
  return fmt::format("{}, port {}, {}", fmt::join(at.hosts, " and "), at.port,
                     reached.silent
                         ? "accepts the connection but does not answer; its machine is overloaded"
                         : "does not accept a connection; a firewall blocks it, or the address "
                           "belongs to another network");
}

class TcpTransport final : public Transport {
 public:
  // `name` is the same on all ranks, and differs from that of all other transports of the job.
  TcpTransport(std::shared_ptr<Exchange> exchange, std::string name, std::vector<int> world_ranks)
      : exchange_(std::move(exchange)),
        name_(std::move(name)),
        world_ranks_(std::move(world_ranks)),
        mailbox_(exchange_->switchboard.mailbox(name_)),
        streams_(world_ranks_.size()) {
    const auto me = std::find(world_ranks_.begin(), world_ranks_.end(), exchange_->plan.rank);
    rank_ = static_cast<int>(me - world_ranks_.begin());
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(world_ranks_.size()); }
  std::string_view name() const noexcept override { return "tcp"; }
  int world_rank(int rank) const noexcept override {
    return world_ranks_[static_cast<std::size_t>(rank)];
  }
  std::string node_key() const override { return exchange_->plan.node; }
  bool one_process() const noexcept override { return false; }

  Ticket post_send(std::span<const std::byte> data, int peer, int tag) override {
    const Ticket ticket = free_slot(peer, data.size());
    stream_to(peer).send(ticket, tag, data);
    return ticket;
  }

  Ticket post_receive(std::span<std::byte> data, int peer, int tag) override {
    const Ticket ticket = free_slot(peer, data.size());
    stream_to(peer).receive(ticket, tag, data);
    return ticket;
  }

  bool poll(Ticket ticket) override {
    Slot& slot = slots_[ticket];
    if (slot.state == State::moving) {
      open_mail();
      TcpStream& stream = stream_to(slot.peer);
      for (const auto& [finished, wrong_length] : stream.progress()) {
        slots_[finished].state = wrong_length ? State::wrong_length : State::done;
      }
      if (slot.state == State::moving && stream.ended()) {
        throw BrokenCollective(Symptom::remote_error,
                               fmt::format("rank {} lost its connection to rank {}",
                                           world_rank(rank_), world_rank(slot.peer)));
      }
    }
    if (slot.state == State::moving) return false;
    if (slot.state == State::wrong_length) {
      throw_wrong_length(world_rank(rank_), world_rank(slot.peer), slot.bytes);
    }
    free_.push_back(ticket);
    return true;
  }

  // Wakes up for data.
  void idle(int calls) override {
    if (calls < kSpinningCalls) return;
    if (calls < kYieldingCalls) return std::this_thread::yield();
    waiting_.clear();
    for (const int peer : used_) {
      const TcpStream& stream = *streams_[static_cast<std::size_t>(peer)];
      if (const short events = stream.events()) waiting_.push_back({stream.fd(), events, 0});
    }
    const timespec nap{0, std::chrono::nanoseconds(nap_after(calls)).count()};
    ppoll(waiting_.data(), waiting_.size(), &nap, nullptr);
  }
  std::chrono::microseconds nap_after(int calls) const noexcept override {
    return std::chrono::microseconds(
        calls < kYieldingCalls ? 0 : std::min(100, calls - kYieldingCalls + 10));
  }

  void abandon(Ticket ticket) noexcept override {
    if (auto& stream = streams_[static_cast<std::size_t>(slots_[ticket].peer)]) {
      stream->forget(ticket);
    }
    free_.push_back(ticket);
  }

  std::unique_ptr<Transport> split(std::span<const int> members) override {
    const std::size_t number = splits_++;
    if (members.empty()) return nullptr;
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(world_rank(member));
    // Parts are disjoint, so the first member tells them apart.
    auto name = fmt::format("{}/{}:{}", name_, number, members.front());
    return std::make_unique<TcpTransport>(exchange_, std::move(name), std::move(world_ranks));
  }

 private:
  enum class State : std::uint8_t { moving, done, wrong_length };
  struct Slot {
    State state = State::moving;
    int peer = 0;
    std::size_t bytes = 0;
  };

  Ticket free_slot(int peer, std::size_t bytes) {
    if (free_.empty()) {
      free_.push_back(static_cast<Ticket>(slots_.size()));
      slots_.emplace_back();
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    slots_[ticket] = {State::moving, peer, bytes};
    return ticket;
  }

  // Of two ranks, the higher one connects to the other.
  TcpStream& stream_to(int peer) {
    auto& stream = streams_[static_cast<std::size_t>(peer)];
    if (!stream) {
      stream = std::make_unique<TcpStream>();
      used_.push_back(peer);
      if (world_rank(peer) < world_rank(rank_)) connect_to(peer, *stream);
    }
    return *stream;
  }

  void connect_to(int peer, TcpStream& stream) const {
    const auto& plan = exchange_->plan;
    const auto& at = exchange_->directory[static_cast<std::size_t>(world_rank(peer))];
    const auto who = text_of(Call{name_, world_rank(peer), {}});
    auto reached = reach_hub({at.hosts, at.port, {}}, {plan.key, plan.rank, who}, kConnect,
                             exchange_->failures);
    exchange_->failures.throw_if_failed();
    if (!reached.connection) {
      throw RuntimeError(fmt::format("rank {} cannot open a TCP connection to rank {}: {}",
                                     plan.rank, world_rank(peer), why_no_connection(at, reached)));
    }
    auto [socket, received] = reached.connection->release();
    stream.attach(std::move(socket), std::move(received));
  }

  void open_mail() {
    if (mailbox_->empty()) return;
    for (auto& caller : mailbox_->take()) {
      const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), caller.rank);
      if (found == world_ranks_.end() || *found <= world_rank(rank_)) continue;
      auto [socket, received] = caller.connection.release();
      stream_to(static_cast<int>(found - world_ranks_.begin()))
          .attach(std::move(socket), std::move(received));
    }
  }

  static constexpr int kSpinningCalls = 32;
  static constexpr int kYieldingCalls = 128;

  std::shared_ptr<Exchange> exchange_;
  std::string name_;
  std::vector<int> world_ranks_;
  int rank_ = 0;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<std::unique_ptr<TcpStream>> streams_;  // by rank
  std::vector<int> used_;                            // the ranks with a stream
  std::vector<Slot> slots_;                          // by ticket
  std::vector<Ticket> free_;
  std::vector<pollfd> waiting_;  // used by idle()
  std::size_t splits_ = 0;       // used only by the thread that splits
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const TcpPlan& plan, const FailureState& failures,
                                              std::chrono::milliseconds timeout) {
  return make_tcp_transport(plan, listen_for_ranks(plan), failures, timeout);
}

std::unique_ptr<Transport> make_tcp_transport(const TcpPlan& plan, Listener listener,
                                              const FailureState& failures,
                                              std::chrono::milliseconds timeout) {
  std::vector<int> world_ranks(static_cast<std::size_t>(plan.ranks));
  for (int rank = 0; rank < plan.ranks; ++rank) world_ranks[static_cast<std::size_t>(rank)] = rank;
  return std::make_unique<TcpTransport>(
      std::make_shared<Exchange>(plan, std::move(listener), failures, timeout), "data",
      std::move(world_ranks));
}

}  // namespace ddp::comm
