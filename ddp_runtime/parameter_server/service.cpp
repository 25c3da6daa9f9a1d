// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parameter_server/service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::parameter_server {
namespace {

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

// Another rank, both as a worker of this server and as a server of this worker.
struct Service::Client {
  enum class At : std::uint8_t { asking, pushing, waiting, reading, gone };

  int rank = 0;
  At at = At::asking;
  Request request;
  Answer answer;
  std::vector<float> buffer;          // gradient from its worker, then the answer to it
  std::vector<comm::Ticket> tickets;  // in flight to or from its worker

  Answer theirs;                   // its server's answer to our request
  std::vector<comm::Ticket> ours;  // in flight to or from its server
};

struct Service::Memory {
  Request request;  // from this rank to all servers
  std::vector<Client> clients;
};

Service::Service(comm::PointToPointChannel& line, Shard shard, std::size_t length,
                 RequestSlot& slot)
    : line_(line),
      shard_(std::move(shard)),
      length_(length),
      slot_(slot),
      memory_(std::make_shared<Memory>()),
      clients_(memory_->clients),
      wait_timer_(*line.failures, line.limits.timeout, line.limits.report_after) {
  for (int other = 0; other < line_.transport->size(); ++other) {
    if (other == rank()) continue;
    clients_.emplace_back().rank = other;
    clients_.back().buffer.resize(length_);
  }
  line_.keep = memory_;
  thread_ = std::thread([this] { run(); });
}

Service::~Service() {
  slot_.close();
  thread_.join();
  for (auto& client : clients_) {
    for (const auto ticket : client.tickets) line_.transport->abandon(ticket);
    for (const auto ticket : client.ours) line_.transport->abandon(ticket);
  }
}

void Service::run() {
  try {
    for (auto& client : clients_) listen_to(client);
    int idle_calls = 0;
    while (!finished()) {
      if (progress()) {
        idle_calls = 0;
      } else {
        wait_for_news(idle_calls++);
      }
    }
  } catch (const PeerFailure&) {
    slot_.fail(std::current_exception());
  } catch (const BrokenCollective& e) {
    line_.failures->fail({.rank = rank(), .text = e.what(), .symptom = e.symptom()});
    slot_.fail(std::current_exception());
  } catch (const std::exception& e) {
    line_.failures->fail({rank(), e.what()});
    slot_.fail(std::current_exception());
  }
}

bool Service::finished() const {
  return slot_.closed() || (shut_down_ && !own_);
}

bool Service::all_gone() const {
  return std::all_of(clients_.begin(), clients_.end(),
                     [](const Client& c) { return c.at == Client::At::gone; });
}

bool Service::progress() {
  bool moved = take_exchange();
  for (auto& client : clients_) moved |= serve(client);
  moved |= answer_whose_turn_it_is();
  return finish_exchange() || moved;
}

void Service::wait_for_news(int idle_calls) {
  line_.failures->throw_if_failed();
  if (own_) check_time();
  if (!clients_.empty()) line_.transport->idle(idle_calls);
}

// As in every other wait: reports a slow wait after a while, and gives up at the timeout.
void Service::check_time() {
  wait_timer_.check([&](std::chrono::milliseconds waited) {
    return fmt::format("rank {} waited {:.0f} s after step {} for {}", rank(),
                       std::chrono::duration<double>(waited).count(),
                       shard_.clocks().done_by(rank()), whom_we_wait_for());
  });
}

std::string Service::whom_we_wait_for() const {
  const auto& clocks = shard_.clocks();
  if (clocks.slowest() < own_->request.needs) {
    return fmt::format("rank {}, which has completed {} steps", clocks.slowest_rank(),
                       clocks.slowest());
  }
  std::vector<int> silent;
  for (const auto& server : clients_) {
    if (!server.ours.empty()) silent.push_back(server.rank);
  }
  return fmt::format("an answer from the server{} of rank {}", silent.size() == 1 ? "" : "s",
                     fmt::join(silent, ", "));
}

// Removes completed messages; returns whether none are left in flight.
bool Service::arrived(std::vector<comm::Ticket>& tickets) {
  while (!tickets.empty() && line_.transport->poll(tickets.back())) tickets.pop_back();
  return tickets.empty();
}

void Service::listen_to(Client& client) {
  client.at = Client::At::asking;
  client.tickets = {
      line_.transport->post_receive(bytes_of(client.request), client.rank, kRequestTag)};
}

// Advances a worker's exchange by one step, if possible.
bool Service::serve(Client& client) {
  if (client.at == Client::At::waiting || client.at == Client::At::gone) return false;
  if (!arrived(client.tickets)) return false;
  switch (client.at) {
    case Client::At::asking:
      understand(client);
      break;
    case Client::At::pushing:
      push(client);
      break;
    default:
      listen_to(client);
      break;
  }
  return true;
}

void Service::understand(Client& client) {
  const auto& request = client.request;
  const bool pushes = request.type == RequestType::push_and_pull ||
                      request.type == RequestType::push_nothing_and_pull;
  if (pushes && request.step != shard_.clocks().done_by(client.rank) + 1) {
    throw RuntimeError(fmt::format("rank {} sent step {} after step {}", client.rank, request.step,
                                   shard_.clocks().done_by(client.rank)));
  }
  switch (request.type) {
    case RequestType::push_and_pull:
      client.at = Client::At::pushing;
      client.tickets = {line_.transport->post_receive(
          std::as_writable_bytes(std::span(client.buffer)), client.rank, kGradientTag)};
      return;
    case RequestType::push_nothing_and_pull:
      shard_.push(client.rank, {}, 0);
      break;
    case RequestType::pull:
      break;
    case RequestType::shutdown:
      client.at = Client::At::gone;
      return;
    default:
      throw RuntimeError(fmt::format("invalid request from rank {}", client.rank));
  }
  client.at = Client::At::waiting;
  shard_.ask(client.rank, request.needs);
}

void Service::push(Client& client) {
  shard_.push(client.rank, client.buffer, client.request.learning_rate);
  client.at = Client::At::waiting;
  shard_.ask(client.rank, client.request.needs);
}

bool Service::answer_whose_turn_it_is() {
  bool moved = false;
  while (const auto next = shard_.take_answerable()) {
    moved = true;
    if (*next != rank()) {
      answer(*std::find_if(clients_.begin(), clients_.end(),
                           [&](const Client& c) { return c.rank == *next; }));
      continue;
    }
    const auto mine = own_->values.subspan(static_cast<std::size_t>(rank()) * length_, length_);
    std::copy(shard_.values().begin(), shard_.values().end(), mine.begin());
    std::copy_n(shard_.velocity().begin(), own_->velocity.size(), own_->velocity.begin());
    own_answered_ = true;
  }
  return moved;
}

// Copies the values, because the shard keeps changing while the answer is in flight.
void Service::answer(Client& client) {
  std::copy(shard_.values().begin(), shard_.values().end(), client.buffer.begin());
  client.answer.slowest = shard_.clocks().slowest();
  client.at = Client::At::reading;
  client.tickets = {
      line_.transport->post_send(bytes_of(client.answer), client.rank, kAnswerTag),
      line_.transport->post_send(std::as_bytes(std::span(client.buffer)), client.rank, kValuesTag)};
}

bool Service::take_exchange() {
  if (own_) return false;
  own_ = slot_.take(clients_.empty());
  if (!own_) return false;
  wait_timer_.begin();
  memory_->request = own_->request;
  for (auto& server : clients_) ask(server);
  push_to_own_shard();
  return true;
}

void Service::ask(Client& server) {
  auto& transport = *line_.transport;
  const auto part = static_cast<std::size_t>(server.rank) * length_;
  server.ours = {transport.post_send(bytes_of(memory_->request), server.rank, kRequestTag)};
  if (own_->request.type == RequestType::shutdown) return;
  server.ours.push_back(transport.post_receive(bytes_of(server.theirs), server.rank, kAnswerTag));
  server.ours.push_back(transport.post_receive(
      std::as_writable_bytes(own_->values.subspan(part, length_)), server.rank, kValuesTag));
  if (own_->request.type != RequestType::push_and_pull) return;
  server.ours.push_back(transport.post_send(std::as_bytes(own_->gradient.subspan(part, length_)),
                                            server.rank, kGradientTag));
}

void Service::push_to_own_shard() {
  const auto& request = own_->request;
  own_answered_ = request.type == RequestType::shutdown;
  if (own_answered_) return;
  if (request.type == RequestType::push_and_pull) {
    shard_.push(rank(), own_->gradient.subspan(static_cast<std::size_t>(rank()) * length_, length_),
                request.learning_rate);
  } else if (request.type == RequestType::push_nothing_and_pull) {
    shard_.push(rank(), {}, 0);
  }
  shard_.ask(rank(), request.needs);
}

bool Service::finish_exchange() {
  if (!own_ || !own_answered_) return false;
  bool all = true;
  for (auto& server : clients_) all = arrived(server.ours) && all;
  if (!all) return false;
  std::int64_t slowest = shard_.clocks().slowest();
  for (const auto& server : clients_) slowest = std::min(slowest, server.theirs.slowest);
  // A rank that has sent shutdown may exit, so wait until the others have sent it, too.
  shut_down_ = own_->request.type == RequestType::shutdown;
  if (shut_down_ && !all_gone()) return false;
  own_.reset();
  wait_timer_.moved();
  slot_.finish(slowest);
  return true;
}

}  // namespace ddp::parameter_server
