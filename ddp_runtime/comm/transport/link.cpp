// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddp_runtime/comm/transport/flight.h"

namespace ddp::comm {

void Link::begin(int tag, std::string what) {
  tag_ = tag;
  what_ = std::move(what);
  wait_timer_.begin();
}

void Link::check(int to, int from) {
  if (meanwhile_) meanwhile_();
  wait_timer_.check([&](std::chrono::milliseconds waited) { return report(to, from, waited); });
}

std::string Link::report(int to, int from, std::chrono::milliseconds waited) const {
  const auto seconds = std::chrono::duration<double>(waited).count();
  const auto name = [this](int peer) {
    return fmt::format("rank {}", transport_.world_rank(peer));
  };
  std::string peers;
  if (from >= 0) peers = name(from);
  if (to >= 0 && to != from) peers += (peers.empty() ? "" : " and ") + name(to);
  return fmt::format("{} waited {:.0f} s in {} for {}", name(rank()), seconds, what_, peers);
}

void Link::send(int peer, std::span<const std::byte> data) {
  exchange(peer, data, -1, {});
}

void Link::receive(int peer, std::span<std::byte> data) {
  exchange(-1, {}, peer, data);
}

Flight Link::flight(const OneWay& way) const {
  return {transport_, way.peer >= 0 ? way.bytes : 0, limits_.segment_bytes, limits_.window,
          way.cut};
}

// `take(offset, length)` returns that piece of the outgoing message, and `place` the memory for
// that piece of the incoming message. `arrived(offset, length)` is called when the piece has
// arrived.
template <class Take, class Place, class Arrived>
void Link::exchange_at(const OneWay& out, const Take& take, const OneWay& in, const Place& place,
                       const Arrived& arrived) {
  Flight sending = flight(out);
  Flight receiving = flight(in);
  const auto post_receive = [&](std::size_t offset, std::size_t length) {
    return transport_.post_receive(place(offset, length), in.peer, tag_);
  };
  const auto post_send = [&](std::size_t offset, std::size_t length) {
    return transport_.post_send(take(offset, length), out.peer, tag_);
  };
  int idle_calls = 0;
  while (!sending.complete() || !receiving.complete()) {
    bool moved = receiving.post_up_to(in.bytes, post_receive);
    moved |= sending.post_up_to(out.bytes, post_send);
    moved |= receiving.retire(arrived);
    moved |= sending.retire([](std::size_t, std::size_t) {});
    if (moved) {
      idle_calls = 0;
      wait_timer_.moved();
      continue;
    }
    check(out.peer, in.peer);
    transport_.idle(idle_calls++);
  }
}

void Link::exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) {
  exchange_at(
      {to, out.size()},
      [&](std::size_t offset, std::size_t length) { return out.subspan(offset, length); },
      {from, in.size()},
      [&](std::size_t offset, std::size_t length) { return in.subspan(offset, length); },
      [](std::size_t, std::size_t) {});
}

void Link::exchange(int to, const SplitMessage& out, int from, const SplitMessage& in) {
  exchange_at(
      {to, out.size(), out.first.size()},
      [&](std::size_t offset, std::size_t length) { return out.part(offset, length); },
      {from, in.size(), in.first.size()},
      [&](std::size_t offset, std::size_t length) { return in.part(offset, length); },
      [](std::size_t, std::size_t) {});
}

void Link::exchange(int to, const SplitMessage& out, int from, const SplitMessage& in,
                    std::vector<std::byte>& scratch, const OnPair& on_pair) {
  const OneWay incoming{from, in.size(), in.first.size()};
  grow_slots(scratch, incoming);
  const auto place = [&](std::size_t offset, std::size_t length) {
    return slot(scratch, incoming, offset, length);
  };
  exchange_at(
      {to, out.size(), out.first.size()},
      [&](std::size_t offset, std::size_t length) { return out.part(offset, length); }, incoming,
      place,
      [&](std::size_t offset, std::size_t length) {
        on_pair(in.part(offset, length), place(offset, length));
      });
}

// Pieces are retired in order, so one slot for each piece in flight is enough. A cut adds one
// piece.
void Link::grow_slots(std::vector<std::byte>& scratch, const OneWay& in) const {
  const std::size_t message = in.bytes + (in.cut > 0 ? limits_.segment_bytes : 0);
  const std::size_t needed = std::min(message, limits_.segment_bytes * limits_.window);
  if (scratch.size() < needed) scratch.resize(needed);
}

std::span<std::byte> Link::slot(std::vector<std::byte>& scratch, const OneWay& in,
                                std::size_t offset, std::size_t length) const {
  const std::size_t segment = limits_.segment_bytes;
  const std::size_t before_cut = (in.cut + segment - 1) / segment;
  const std::size_t number =
      offset < in.cut ? offset / segment : before_cut + (offset - in.cut) / segment;
  return std::span(scratch).subspan(number % limits_.window * segment, length);
}

void Link::chain(int before, int after, std::span<std::byte> data, std::vector<std::byte>& scratch,
                 const Combine& combine, const OnArrival& finished) {
  const std::size_t n = data.size();
  const OneWay from_before{before, n};
  Flight sums_in = flight(from_before);
  Flight sums_out = flight({after, n});
  Flight results_in = flight({after, n});
  Flight results_out = flight({before, n});
  const auto send_to = [&](int peer) {
    return [&, peer](std::size_t offset, std::size_t length) {
      return transport_.post_send(data.subspan(offset, length), peer, tag_);
    };
  };
  if (before >= 0) grow_slots(scratch, from_before);
  const auto nothing = [](std::size_t, std::size_t) {};
  if (before < 0 && n > 0) combine(0, n, {});
  if (before < 0 && after < 0) return finished(0, n);

  int idle_calls = 0;
  while (!sums_in.complete() || !sums_out.complete() || !results_in.complete() ||
         !results_out.complete()) {
    bool moved = sums_in.post_up_to(n, [&](std::size_t offset, std::size_t length) {
      return transport_.post_receive(slot(scratch, from_before, offset, length), before, tag_);
    });
    moved |= sums_in.retire([&](std::size_t offset, std::size_t length) {
      combine(offset, length, slot(scratch, from_before, offset, length));
      if (after < 0) finished(offset, length);
    });
    const std::size_t summed = before >= 0 ? sums_in.completed() : n;
    moved |= sums_out.post_up_to(summed, send_to(after));
    moved |= sums_out.retire(nothing);
    // A result overwrites the sum in `data`, so the sum must already have been sent.
    moved |=
        results_in.post_up_to(sums_out.completed(), [&](std::size_t offset, std::size_t length) {
          return transport_.post_receive(data.subspan(offset, length), after, tag_);
        });
    moved |= results_in.retire(finished);
    moved |= results_out.post_up_to(after >= 0 ? results_in.completed() : summed, send_to(before));
    moved |= results_out.retire(nothing);
    if (moved) {
      idle_calls = 0;
      wait_timer_.moved();
      continue;
    }
    check(after, before);
    transport_.idle(idle_calls++);
  }
}

void Link::relay(int from, int to, std::span<std::byte> data) {
  Flight sending = flight({to, data.size()});
  Flight receiving = flight({from, data.size()});
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
      wait_timer_.moved();
      continue;
    }
    check(to, from);
    transport_.idle(idle_calls++);
  }
}

}  // namespace ddp::comm
