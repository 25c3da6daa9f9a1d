// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/node_hub.h"

#include <exception>
#include <utility>

#include "spank_plugin/guard/end_message.h"
#include "spank_plugin/guard/intervals.h"

namespace ddp::guard {
namespace {

// A report waits for the guard's next look, and so does the number that it repeats.
constexpr auto kOldest = 2 * kLongestInterval + std::chrono::seconds(2);

}  // namespace

NodeHub::NodeHub(Listener listener, const Key& key, std::uint32_t nodes, int waker)
    : most_nodes_(nodes),
      reception_(events_, std::move(listener), key,
                 {[this](int node, const std::string&) { return may_join(node); },
                  [this](Reception::Arrival arrival) { join(std::move(arrival)); }}) {
  events_.watch(waker, kWakeEvent);
}

void NodeHub::turn() {
  const auto events = events_.wait(static_cast<int>(kLinkTurn.count()));
  const auto now = clock_.look();
  const std::lock_guard lock(mutex_);
  for (const auto& event : events) {
    const std::uint64_t key = event.data.u64;
    if (key == kWakeEvent) continue;
    if (key >= Reception::kFirstKey) {
      reception_.handle(key, now, most_nodes_);
    } else if (const auto node = nodes_.find(static_cast<int>(key)); node != nodes_.end()) {
      hear(node->second);
    }
  }
  reception_.look_after(now, true);
  if (number_ == 0 || Clock::now() - sent_[number_ % kNumbers] >= kLinkTurn) send_number();
}

void NodeHub::send_number() {
  ++number_;
  sent_[number_ % kNumbers] = Clock::now();
  for (auto& [rank, node] : nodes_) {
    // One that does not read gets no more, and its reports grow old.
    if (node.connection && !node.connection.unsent()) {
      node.connection.send({MessageKind::alive, static_cast<int>(number_), {}});
    }
  }
}

// A guard of a node that has one already is the next one, whose predecessor has ended.
bool NodeHub::may_join(int node) const {
  return node > 0 && (nodes_.contains(node) || nodes_.size() < most_nodes_);
}

void NodeHub::join(Reception::Arrival arrival) {
  if (!may_join(arrival.rank)) return;
  Node& node = nodes_[arrival.rank];
  node.name = std::move(arrival.who);
  node.connection = std::move(arrival.connection);
  events_.change(node.connection.fd(), static_cast<std::uint64_t>(arrival.rank), false);
  node.connection.send({MessageKind::alive, static_cast<int>(number_), {}});
  node.knows_end = false;
  tell_end();
  take(node, arrival.first);
  hear(node);  // what has arrived behind its first message
}

void NodeHub::hear(Node& node) {
  bool is_open = false;
  try {
    is_open = node.connection.fill();
    while (const auto message = node.connection.next()) take(node, *message);
    if (node.connection.unsent()) node.connection.flush();
  } catch (const std::exception&) {
    is_open = false;  // not our protocol
  }
  if (!is_open) node.connection.close();
}

void NodeHub::take(Node& node, const Message& message) {
  if (const auto end = parse_end(message)) take_end(*end);
  if (message.kind == MessageKind::goodbye) node.over_since = Clock::now();
  if (message.kind != MessageKind::status) return;
  auto report = watch::parse_report(message.text, node.name);
  if (!report) return;
  node.report = *std::move(report);
  node.over_since.reset();
  node.made_after.reset();
  const auto number = static_cast<std::uint32_t>(message.rank);
  const bool is_known = number > 0 && number <= number_ && number_ - number < kNumbers;
  if (is_known) node.made_after = sent_[number % kNumbers];
}

// The node that has sent it gets it back, and knows it.
void NodeHub::take_end(const StepEnd& end) {
  if (!is_before(end, end_)) return;
  end_ = end;
  for (auto& [rank, node] : nodes_) node.knows_end = false;
  tell_end();
}

void NodeHub::tell_end() {
  if (!end_) return;
  const Message message = to_message(*end_);
  for (auto& [rank, node] : nodes_) {
    if (node.connection && !node.knows_end) node.knows_end = node.connection.send(message);
  }
}

void NodeHub::end_step(const StepEnd& end) {
  const std::lock_guard lock(mutex_);
  take_end(end);
}

std::optional<StepEnd> NodeHub::step_end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

bool NodeHub::has_told(std::uint32_t ranks) const {
  const std::lock_guard lock(mutex_);
  std::size_t told = 0;
  for (const auto& [rank, node] : nodes_) {
    if (node.knows_end || node.over_since) told += node.report.ranks.size();
  }
  return !end_ || told >= ranks;
}

void NodeHub::ask() {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, node] : nodes_) {
    if (node.connection) node.connection.send({MessageKind::status_request, 0, {}});
  }
}

watch::RanksReport NodeHub::ranks(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  watch::RanksReport all;
  for (const auto& [rank, node] : nodes_) {
    const bool is_recent = node.made_after && now - *node.made_after < kOldest;
    if (!node.over_since && !is_recent) continue;
    watch::RanksReport one = node.report;
    for (auto& report : one.ranks) {
      if (node.over_since && report.quiet) *report.quiet += now - *node.over_since;
    }
    all.append(one);
  }
  return all;
}

}  // namespace ddp::guard
