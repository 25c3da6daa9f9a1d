// SPDX-License-Identifier: Apache-2.0
#include "bench/recording_transport.h"

namespace ddp::bench {

using comm::Ticket;

Ticket RecordingTransport::remember(Ticket ticket, bool sent, int peer, std::size_t bytes) {
  if (message_of_.size() <= ticket) message_of_.resize(ticket + std::size_t{1});
  message_of_[ticket] = messages_.size();
  messages_.push_back({sent, peer, bytes, comm::Clock::now(), {}});
  return ticket;
}

Ticket RecordingTransport::post_send(std::span<const std::byte> data, int peer, int tag) {
  return remember(transport_->post_send(data, peer, tag), true, peer, data.size());
}

Ticket RecordingTransport::post_receive(std::span<std::byte> data, int peer, int tag) {
  return remember(transport_->post_receive(data, peer, tag), false, peer, data.size());
}

bool RecordingTransport::poll(Ticket ticket) {
  if (!transport_->poll(ticket)) return false;
  messages_[message_of_[ticket]].completed = comm::Clock::now();
  return true;
}

}  // namespace ddp::bench
