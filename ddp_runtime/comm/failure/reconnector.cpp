// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/reconnector.h"

#include <utility>

#include "ddp_runtime/comm/failure/channel_end.h"

namespace ddp::comm {
namespace {

// Limited, so that an address that does not answer leaves time for the other addresses.
constexpr auto kWelcomeWithin = std::chrono::seconds(3);

}  // namespace

Reconnector::Reconnector(std::vector<Connection::Endpoint> addresses, const Key& key, int rank)
    : addresses_(std::move(addresses)), key_(key), rank_(rank) {}

std::optional<Connection> Reconnector::step(std::chrono::milliseconds timeout) {
  if (addresses_.empty()) return std::nullopt;
  if (!attempt_) {
    begin(timeout);
    return std::nullopt;
  }
  const bool open = attempt_->connection.fill();
  const auto state = attempt_->greeting.advance(attempt_->connection);
  if (open && state == RankGreeting::State::welcome) {
    stranger_.reset();
    return std::move(std::exchange(attempt_, std::nullopt)->connection);
  }
  if (state == RankGreeting::State::stranger) stranger_ = attempt_->address;
  if (!open || state == RankGreeting::State::stranger ||
      std::chrono::steady_clock::now() > attempt_->until) {
    attempt_.reset();
  }
  return std::nullopt;
}

void Reconnector::begin(std::chrono::milliseconds timeout) {
  const auto& address = addresses_[next_];
  next_ = (next_ + 1) % addresses_.size();
  auto connection = Connection::open({address.host}, address.port, timeout);
  if (!connection) return;
  RankGreeting greeting(key_, rank_, process_name());
  greeting.begin(*connection);
  attempt_.emplace(Attempt{*std::move(connection), address, std::move(greeting),
                           std::chrono::steady_clock::now() + kWelcomeWithin});
}

}  // namespace ddp::comm
