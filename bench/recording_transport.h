// SPDX-License-Identifier: Apache-2.0
// A transport that records when each message was posted and when it completed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp_runtime/comm/group/work.h"
#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::bench {

struct RecordedMessage {
  bool sent = false;  // false: received
  int peer = 0;
  std::size_t bytes = 0;
  comm::Clock::time_point posted;
  comm::Clock::time_point completed;
};

class RecordingTransport final : public comm::Transport {
 public:
  explicit RecordingTransport(std::unique_ptr<comm::Transport> transport)
      : transport_(std::move(transport)) {}

  int rank() const noexcept override { return transport_->rank(); }
  int size() const noexcept override { return transport_->size(); }
  std::string_view name() const noexcept override { return transport_->name(); }
  int world_rank(int rank) const noexcept override { return transport_->world_rank(rank); }
  std::string node_key() const override { return transport_->node_key(); }
  bool one_process() const noexcept override { return transport_->one_process(); }

  comm::Ticket post_send(std::span<const std::byte> data, int peer, int tag) override;
  comm::Ticket post_receive(std::span<std::byte> data, int peer, int tag) override;
  bool poll(comm::Ticket ticket) override;
  void idle(int calls) override { transport_->idle(calls); }
  void abandon(comm::Ticket ticket) noexcept override { transport_->abandon(ticket); }
  // Does not record the messages of the part.
  std::unique_ptr<comm::Transport> split(std::span<const int> members) override {
    return transport_->split(members);
  }

  // In posting order.
  const std::vector<RecordedMessage>& messages() const noexcept { return messages_; }
  void forget() { messages_.clear(); }

 private:
  comm::Ticket remember(comm::Ticket ticket, bool sent, int peer, std::size_t bytes);

  std::unique_ptr<comm::Transport> transport_;
  std::vector<RecordedMessage> messages_;
  std::vector<std::size_t> message_of_;  // by ticket; transports reuse tickets
};

}  // namespace ddp::bench
