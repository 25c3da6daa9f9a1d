// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/node_ledger.h"

#include <algorithm>
#include <utility>

namespace ddp::elastic {

NodeLedger::NodeLedger(const std::vector<std::string>& nodes, const Settings& settings)
    : settings_(settings) {
  for (const auto& name : nodes) {
    if (!places_.try_emplace(name, nodes_.size()).second) continue;
    nodes_.emplace_back().name = name;
  }
}

bool NodeLedger::is_usable(const Node& node, Seconds now) {
  return node.is_there && node.passed && node.excluded_until <= now;
}

void NodeLedger::note(const std::string& node) {
  out_.insert(places_.at(node));
}

bool NodeLedger::lost(const std::string& node) {
  note(node);
  auto& known = at(node);
  known.passed = false;
  return std::exchange(known.is_there, false);
}

bool NodeLedger::up(const std::string& node, Seconds now) {
  auto& known = at(node);
  known.is_there = true;
  return !known.passed && known.excluded_until <= now;
}

void NodeLedger::passed(const std::string& node) {
  auto& known = at(node);
  known.passed = true;
  if (known.is_there && known.excluded_until == 0) out_.erase(places_.at(node));
}

int NodeLedger::strike(const std::string& node, Seconds now) {
  auto& strikes = at(node).strikes;
  std::erase_if(strikes, [&](Seconds when) { return now - when > settings_.strike_lasts; });
  const auto before = static_cast<int>(strikes.size());
  strikes.push_back(now);
  return before;
}

Seconds NodeLedger::exclude(const std::string& node, Seconds now) {
  note(node);
  auto& known = at(node);
  Seconds pause = settings_.cooldown;
  for (int i = 0; i < known.exclusions && pause < settings_.max_cooldown; ++i) pause *= 2;
  ++known.exclusions;
  known.excluded_until = now + std::min(pause, settings_.max_cooldown);
  known.passed = false;
  return known.excluded_until;
}

void NodeLedger::exclude_forever(const std::string& node) {
  note(node);
  at(node).excluded_until = kForever;
}

bool NodeLedger::is_excluded_forever(const std::string& node) const {
  return at(node).excluded_until >= kForever;
}

std::vector<std::string> NodeLedger::usable(Seconds now) const {
  std::vector<std::string> names;
  for (const auto& node : nodes_) {
    if (is_usable(node, now)) names.push_back(node.name);
  }
  return names;
}

bool NodeLedger::is_usable(const std::string& node, Seconds now) const {
  return is_usable(at(node), now);
}

std::size_t NodeLedger::number_of_usable(Seconds now) const {
  const auto unusable = std::ranges::count_if(
      out_, [&](std::size_t place) { return !is_usable(nodes_[place], now); });
  return nodes_.size() - static_cast<std::size_t>(unusable);
}

std::vector<std::string> NodeLedger::take_returning(Seconds now) {
  std::vector<std::string> names;
  for (const std::size_t place : out_) {
    auto& node = nodes_[place];
    if (!node.is_there || node.excluded_until == 0 || node.excluded_until > now) continue;
    node.excluded_until = 0;
    if (!node.passed) names.push_back(node.name);
  }
  std::erase_if(out_, [&](std::size_t place) {
    return is_usable(nodes_[place], now) && nodes_[place].excluded_until == 0;
  });
  return names;
}

}  // namespace ddp::elastic
