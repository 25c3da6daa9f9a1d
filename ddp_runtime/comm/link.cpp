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
  patience_.begin();
}

void Link::check(int to, int from) {
  patience_.check([&](std::chrono::milliseconds waited) { return complaint(to, from, waited); });
}

std::string Link::complaint(int to, int from, std::chrono::milliseconds waited) const {
  const auto seconds = std::chrono::duration<double>(waited).count();
  std::string peers;
  if (from >= 0) peers = fmt::format("rank {}", from);
  if (to >= 0 && to != from) peers += fmt::format("{}rank {}", peers.empty() ? "" : " and ", to);
  return fmt::format("rank {} waited {:.0f} s in {} for {}", rank(), seconds, what_, peers);
}

void Link::send(int peer, std::span<const std::byte> data) {
  exchange(peer, data, -1, {});
}

void Link::receive(int peer, std::span<std::byte> data) {
  exchange(-1, {}, peer, data);
}

// `place(offset, length)` is the memory for that piece of the incoming message.
template <class Place>
void Link::exchange_at(int to, std::span<const std::byte> out, int from, std::size_t in_bytes,
                       const Place& place, const OnArrival& on_arrival) {
  Flight sending(transport_, to >= 0 ? out.size() : 0, limits_.segment_bytes, limits_.window);
  Flight receiving(transport_, from >= 0 ? in_bytes : 0, limits_.segment_bytes, limits_.window);
  const auto post_receive = [&](std::size_t offset, std::size_t length) {
    return transport_.post_receive(place(offset, length), from, tag_);
  };
  const auto post_send = [&](std::size_t offset, std::size_t length) {
    return transport_.post_send(out.subspan(offset, length), to, tag_);
  };
  int idle_calls = 0;
  while (!sending.complete() || !receiving.complete()) {
    bool moved = receiving.post_up_to(in_bytes, post_receive);
    moved |= sending.post_up_to(out.size(), post_send);
    moved |= receiving.retire(on_arrival);
    moved |= sending.retire([](std::size_t, std::size_t) {});
    if (moved) {
      idle_calls = 0;
      patience_.moved();
      continue;
    }
    check(to, from);
    transport_.idle(idle_calls++);
  }
}

void Link::exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) {
  const auto place = [&](std::size_t offset, std::size_t length) {
    return in.subspan(offset, length);
  };
  exchange_at(to, out, from, in.size(), place, [](std::size_t, std::size_t) {});
}

void Link::exchange(int to, std::span<const std::byte> out, int from, std::size_t in_bytes,
                    std::vector<std::byte>& scratch, const OnPiece& on_piece) {
  grow_slots(scratch, in_bytes);
  const auto place = [&](std::size_t offset, std::size_t length) {
    return slot(scratch, offset, length);
  };
  exchange_at(to, out, from, in_bytes, place, [&](std::size_t offset, std::size_t length) {
    on_piece(offset, place(offset, length));
  });
}

// Pieces are retired in order, so as many slots as there may be under way are enough.
void Link::grow_slots(std::vector<std::byte>& scratch, std::size_t message) const {
  const std::size_t needed = std::min(message, limits_.segment_bytes * limits_.window);
  if (scratch.size() < needed) scratch.resize(needed);
}

std::span<std::byte> Link::slot(std::vector<std::byte>& scratch, std::size_t offset,
                                std::size_t length) const {
  const std::size_t number = offset / limits_.segment_bytes % limits_.window;
  return std::span(scratch).subspan(number * limits_.segment_bytes, length);
}

void Link::chain(int before, int after, std::span<std::byte> data, std::vector<std::byte>& scratch,
                 const Combine& combine, const OnArrival& finished) {
  const std::size_t n = data.size();
  const auto flight = [&](int peer) {
    return Flight(transport_, peer >= 0 ? n : 0, limits_.segment_bytes, limits_.window);
  };
  Flight sums_in = flight(before);
  Flight sums_out = flight(after);
  Flight results_in = flight(after);
  Flight results_out = flight(before);
  const auto send_to = [&](int peer) {
    return [&, peer](std::size_t offset, std::size_t length) {
      return transport_.post_send(data.subspan(offset, length), peer, tag_);
    };
  };
  if (before >= 0) grow_slots(scratch, n);
  const auto nothing = [](std::size_t, std::size_t) {};
  if (before < 0 && n > 0) combine(0, n, {});
  if (before < 0 && after < 0) return finished(0, n);

  int idle_calls = 0;
  while (!sums_in.complete() || !sums_out.complete() || !results_in.complete() ||
         !results_out.complete()) {
    bool moved = sums_in.post_up_to(n, [&](std::size_t offset, std::size_t length) {
      return transport_.post_receive(slot(scratch, offset, length), before, tag_);
    });
    moved |= sums_in.retire([&](std::size_t offset, std::size_t length) {
      combine(offset, length, slot(scratch, offset, length));
      if (after < 0) finished(offset, length);
    });
    const std::size_t summed = before >= 0 ? sums_in.completed() : n;
    moved |= sums_out.post_up_to(summed, send_to(after));
    moved |= sums_out.retire(nothing);
    // A result replaces the sum in `data`, which must have left before.
    moved |=
        results_in.post_up_to(sums_out.completed(), [&](std::size_t offset, std::size_t length) {
          return transport_.post_receive(data.subspan(offset, length), after, tag_);
        });
    moved |= results_in.retire(finished);
    moved |= results_out.post_up_to(after >= 0 ? results_in.completed() : summed, send_to(before));
    moved |= results_out.retire(nothing);
    if (moved) {
      idle_calls = 0;
      patience_.moved();
      continue;
    }
    check(after, before);
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
      patience_.moved();
      continue;
    }
    check(to, from);
    transport_.idle(idle_calls++);
  }
}

}  // namespace ddp::comm
