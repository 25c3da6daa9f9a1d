// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/order_exchange.h"

#include <span>

#include "base/errors.h"

namespace ddp::comm {
namespace {

constexpr int kOrderTag = 1;

}  // namespace

OrderExchange::OrderExchange(PointToPointChannel& channel, const LaunchLog& log, const Group& group)
    : channel_(channel),
      log_(log),
      rank_(channel.transport->rank()),
      size_(channel.transport->size()),
      ranks_{group.world_rank(rank_), group.world_rank((rank_ + size_ - 1) % size_),
             group.name().after},
      frames_(std::make_shared<Frames>()) {
  channel_.keep = frames_;
}

OrderExchange::~OrderExchange() {
  if (sending_) channel_.transport->abandon(*sending_);
  if (receiving_) channel_.transport->abandon(*receiving_);
}

bool OrderExchange::over() const noexcept {
  return size_ == 1 || (sent_last_ && !sending_ && received_last_ && !previous_);
}

void OrderExchange::step(bool last) {
  if (size_ == 1) return;
  send(last);
  receive();
  if (!previous_) return;
  if (const auto text = log_.difference(*previous_, ranks_)) throw RuntimeError(*text);
  if (log_.launched() >= previous_->launched || last) previous_.reset();
}

void OrderExchange::send(bool last) {
  auto& transport = *channel_.transport;
  if (sending_ && transport.poll(*sending_)) sending_.reset();
  const bool nothing_new = log_.launched() == sent_ && !last;
  if (sending_ || sent_last_ || nothing_new) return;
  frames_->outgoing = log_.frame(last);
  sent_ = frames_->outgoing.launched;
  sent_last_ = last;
  sending_ = transport.post_send(std::as_bytes(std::span(&frames_->outgoing, 1)),
                                 (rank_ + 1) % size_, kOrderTag);
}

void OrderExchange::receive() {
  if (received_last_) return;
  auto& transport = *channel_.transport;
  if (receiving_ && transport.poll(*receiving_)) {
    receiving_.reset();
    previous_ = frames_->incoming;
    received_last_ = previous_->last != 0;
    if (received_last_) return;
  }
  if (!receiving_) {
    receiving_ = transport.post_receive(std::as_writable_bytes(std::span(&frames_->incoming, 1)),
                                        (rank_ + size_ - 1) % size_, kOrderTag);
  }
}

}  // namespace ddp::comm
