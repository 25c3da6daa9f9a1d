#include "ddp_runtime/comm/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddp_runtime/comm/errors.h"

namespace ddp::comm {

// One direction of one message: which segments are posted, which are complete. Whatever is still
// under way when it goes out of scope, because something threw, is abandoned.
class Link::Flight {
 public:
  Flight(Transport& transport, std::size_t total, std::size_t segment, std::size_t window)
      : transport_(transport), total_(total), segment_(segment), window_(window) {}
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
      const std::size_t length = std::min(segment_, total_ - posted_);
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
      const std::size_t length = std::min(segment_, total_ - completed_);
      const std::size_t offset = completed_;
      completed_ += length;
      done(offset, length);
      moved = true;
    }
    return moved;
  }

 private:
  Transport& transport_;
  std::size_t total_;
  std::size_t segment_;
  std::size_t window_;
  std::size_t posted_ = 0;
  std::size_t completed_ = 0;
  std::deque<Ticket> under_way_;
};

void Link::begin(int tag, std::string what) {
  tag_ = tag;
  what_ = std::move(what);
  deadline_ = Clock::now() + limits_.timeout;
}

void Link::check(int to, int from) const {
  failures_.throw_if_failed();
  if (Clock::now() > deadline_) give_up(to, from);
}

void Link::give_up(int to, int from) const {
  const auto seconds = std::chrono::duration<double>(limits_.timeout).count();
  std::string peers;
  if (from >= 0) peers = fmt::format("rank {}", from);
  if (to >= 0 && to != from) peers += fmt::format("{}rank {}", peers.empty() ? "" : " and ", to);
  throw RuntimeError(
      fmt::format("rank {} waited {:.0f} s in {} for {}: stopped, unreachable, or it did not call "
                  "that collective",
                  rank(), seconds, what_, peers));
}

void Link::send(int peer, std::span<const std::byte> data) {
  exchange(peer, data, -1, {});
}

void Link::receive(int peer, std::span<std::byte> data) {
  exchange(-1, {}, peer, data);
}

void Link::exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in,
                    const OnArrival& on_arrival) {
  Flight sending(transport_, to >= 0 ? out.size() : 0, limits_.segment_bytes, limits_.window);
  Flight receiving(transport_, from >= 0 ? in.size() : 0, limits_.segment_bytes, limits_.window);
  const auto post_receive = [&](std::size_t offset, std::size_t length) {
    return transport_.post_receive(in.subspan(offset, length), from, tag_);
  };
  const auto post_send = [&](std::size_t offset, std::size_t length) {
    return transport_.post_send(out.subspan(offset, length), to, tag_);
  };
  const auto arrived = [&](std::size_t offset, std::size_t length) {
    if (on_arrival) on_arrival(offset, length);
  };
  int idle_calls = 0;
  while (!sending.complete() || !receiving.complete()) {
    bool moved = receiving.post_up_to(in.size(), post_receive);
    moved |= sending.post_up_to(out.size(), post_send);
    moved |= receiving.retire(arrived);
    moved |= sending.retire([](std::size_t, std::size_t) {});
    if (moved) {
      idle_calls = 0;
      continue;
    }
    check(to, from);
    transport_.idle(idle_calls++);
  }
}

void Link::relay(int from, int to, std::span<std::byte> data) {
  Flight sending(transport_, data.size(), limits_.segment_bytes, limits_.window);
  Flight receiving(transport_, data.size(), limits_.segment_bytes, limits_.window);
  int idle_calls = 0;
  while (!sending.complete()) {
    bool moved = receiving.post_up_to(data.size(), [&](std::size_t offset, std::size_t length) {
      return transport_.post_receive(data.subspan(offset, length), from, tag_);
    });
    moved |= receiving.retire([](std::size_t, std::size_t) {});
    moved |= sending.post_up_to(receiving.completed(), [&](std::size_t offset, std::size_t length) {
      return transport_.post_send(data.subspan(offset, length), to, tag_);
    });
    moved |= sending.retire([](std::size_t, std::size_t) {});
    if (moved) {
      idle_calls = 0;
      continue;
    }
    check(to, from);
    transport_.idle(idle_calls++);
  }
}

}  // namespace ddp::comm
