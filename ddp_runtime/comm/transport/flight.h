// SPDX-License-Identifier: Apache-2.0
// One direction of one message, cut into segments. Tracks which segments are posted and which are
// complete. The destructor abandons segments that are still in flight because of an exception.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::comm {

class Flight {
 public:
  // No segment crosses byte `cut` of the message.
  Flight(Transport& transport, std::size_t total, std::size_t segment, std::size_t window,
         std::size_t cut = 0)
      : transport_(transport), total_(total), segment_(segment), window_(window), cut_(cut) {}
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight() {
    for (const Ticket ticket : under_way_) transport_.abandon(ticket);
  }

  bool complete() const noexcept { return completed_ >= total_; }
  std::size_t completed() const noexcept { return completed_; }

  // Posts segments while the window has room and `limit` bytes of the message are ready.
  template <class Post>
  bool post_up_to(std::size_t limit, const Post& post) {
    bool moved = false;
    while (under_way_.size() < window_ && posted_ < total_) {
      const std::size_t length = length_at(posted_);
      if (posted_ + length > limit) break;
      under_way_.push_back(post(posted_, length));
      posted_ += length;
      moved = true;
    }
    return moved;
  }

  // Retires segments in order; calls done(offset, length) for each.
  template <class Done>
  bool retire(const Done& done) {
    bool moved = false;
    while (!under_way_.empty() && transport_.poll(under_way_.front())) {
      under_way_.pop_front();
      const std::size_t length = length_at(completed_);
      const std::size_t offset = completed_;
      completed_ += length;
      done(offset, length);
      moved = true;
    }
    return moved;
  }

 private:
  // Length of the segment that begins at `offset`.
  std::size_t length_at(std::size_t offset) const {
    return std::min(segment_, (offset < cut_ ? cut_ : total_) - offset);
  }

  Transport& transport_;
  std::size_t total_;
  std::size_t segment_;
  std::size_t window_;
  std::size_t cut_;
  std::size_t posted_ = 0;
  std::size_t completed_ = 0;
  std::deque<Ticket> under_way_;
};

}  // namespace ddp::comm
