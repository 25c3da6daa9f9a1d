// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/in_process_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <tuple>

#include "base/errors.h"

namespace ddp::comm {
namespace {

// A posted send or receive that is not matched yet, or is matched and not polled yet.
struct Parcel {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  bool done = false;
  bool length_differs = false;  // known only to the receiver, as over a network
};

using Route = std::tuple<int, int, int>;  // sender, receiver, tag

// State shared by all ranks. Messages use a rendezvous: the second of sender and receiver to arrive
// copies the data under the lock. This serializes copies, which is acceptable for tests.
struct Exchange {
  std::mutex mutex;
  std::condition_variable moved;
  std::map<Route, std::list<std::shared_ptr<Parcel>>> waiting_sends;
  std::map<Route, std::list<std::shared_ptr<Parcel>>> waiting_receives;

  // A part that not all of its ranks have taken yet, by the number of the split and its first rank.
  struct Part {
    std::shared_ptr<Exchange> exchange;
    std::size_t missing = 0;
  };
  std::map<std::pair<std::size_t, int>, Part> parts;
};

std::shared_ptr<Parcel> take_first(std::map<Route, std::list<std::shared_ptr<Parcel>>>& waiting,
                                   const Route& route) {
  const auto found = waiting.find(route);
  if (found == waiting.end()) return nullptr;
  auto message = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) waiting.erase(found);
  return message;
}

void complete(Parcel& send, Parcel& receive) {
  if (send.bytes == receive.bytes) {
    std::memcpy(receive.to, send.from, send.bytes);
  } else {
    receive.length_differs = true;
  }
  send.done = receive.done = true;
}

class InProcessTransport final : public Transport {
 public:
  // `world_ranks`: the rank in the job of each rank; empty: the same.
  InProcessTransport(int rank, int size, int node, std::shared_ptr<Exchange> exchange,
                     std::vector<int> world_ranks = {})
      : rank_(rank),
        size_(size),
        node_(node),
        world_ranks_(std::move(world_ranks)),
        exchange_(std::move(exchange)) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string_view name() const noexcept override { return size_ == 1 ? "self" : "threads"; }
  int world_rank(int rank) const noexcept override {
    return world_ranks_.empty() ? rank : world_ranks_[static_cast<std::size_t>(rank)];
  }
  std::string node_key() const override { return fmt::format("node {}", node_); }
  bool one_process() const noexcept override { return true; }

  Ticket post_send(std::span<const std::byte> data, int peer, int tag) override {
    auto message = std::make_shared<Parcel>();
    message->from = data.data();
    message->bytes = data.size();
    const Route route{rank_, peer, tag};
    const std::lock_guard lock(exchange_->mutex);
    if (const auto receive = take_first(exchange_->waiting_receives, route)) {
      complete(*message, *receive);
      exchange_->moved.notify_all();
    } else {
      exchange_->waiting_sends[route].push_back(message);
    }
    return remember(std::move(message));
  }

  Ticket post_receive(std::span<std::byte> data, int peer, int tag) override {
    auto message = std::make_shared<Parcel>();
    message->to = data.data();
    message->bytes = data.size();
    message->peer = peer;
    const Route route{peer, rank_, tag};
    const std::lock_guard lock(exchange_->mutex);
    if (const auto send = take_first(exchange_->waiting_sends, route)) {
      complete(*send, *message);
      exchange_->moved.notify_all();
    } else {
      exchange_->waiting_receives[route].push_back(message);
    }
    return remember(std::move(message));
  }

  bool poll(Ticket ticket) override {
    const std::lock_guard lock(exchange_->mutex);
    const auto found = mine_.find(ticket);
    if (!found->second->done) return false;
    const auto message = std::move(found->second);
    mine_.erase(found);
    if (message->length_differs) {
      throw_wrong_length(world_rank(rank_), world_rank(message->peer), message->bytes);
    }
    return true;
  }

  void idle(int) override {
    std::unique_lock lock(exchange_->mutex);
    exchange_->moved.wait_for(lock, std::chrono::milliseconds(1));
  }

  void abandon(Ticket ticket) noexcept override {
    const std::lock_guard lock(exchange_->mutex);
    const auto found = mine_.find(ticket);
    if (found == mine_.end()) return;
    for (auto* waiting : {&exchange_->waiting_sends, &exchange_->waiting_receives}) {
      for (auto& [route, messages] : *waiting) messages.remove(found->second);
      std::erase_if(*waiting, [](const auto& entry) { return entry.second.empty(); });
    }
    mine_.erase(found);
  }

  std::unique_ptr<Transport> split(std::span<const int> members) override {
    const std::size_t number = splits_++;
    if (members.empty()) return nullptr;
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(world_rank(member));
    const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
    return std::make_unique<InProcessTransport>(static_cast<int>(place),
                                                static_cast<int>(members.size()), node_,
                                                take_part(number, members), std::move(world_ranks));
  }

 private:
  // The first rank that asks for a part creates it.
  std::shared_ptr<Exchange> take_part(std::size_t number, std::span<const int> members) {
    const std::lock_guard lock(exchange_->mutex);
    const auto [entry, is_new] = exchange_->parts.try_emplace({number, members.front()});
    auto& [exchange, missing] = entry->second;
    if (is_new) {
      exchange = std::make_shared<Exchange>();
      missing = members.size();
    }
    auto taken = exchange;
    if (--missing == 0) exchange_->parts.erase(entry);
    return taken;
  }

  Ticket remember(std::shared_ptr<Parcel> message) {
    mine_.emplace(next_, std::move(message));
    return next_++;
  }

  int rank_;
  int size_;
  int node_;
  std::vector<int> world_ranks_;
  std::size_t splits_ = 0;  // used only by the thread that splits
  std::shared_ptr<Exchange> exchange_;
  std::map<Ticket, std::shared_ptr<Parcel>> mine_;  // guarded by the exchange's mutex
  Ticket next_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_transports(
    int ranks, const std::function<int(int)>& node_of) {
  const auto exchange = std::make_shared<Exchange>();
  std::vector<std::unique_ptr<Transport>> transports;
  transports.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    transports.push_back(
        std::make_unique<InProcessTransport>(rank, ranks, node_of ? node_of(rank) : 0, exchange));
  }
  return transports;
}

}  // namespace ddp::comm
