// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/exchange.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/errors.h"
#include "ddp_runtime/check/findings/pattern.h"
#include "ddp_runtime/check/findings/threshold.h"

namespace ddp::check {
namespace {

// Both ends must cut the data at the same places, because MPI receives each message as it was sent.
constexpr std::size_t kSegment = std::size_t{4} << 20;
constexpr int kRoundTrips = 40;
constexpr int kWarmUpRoundTrips = 8;
constexpr int kWarmUpPieces = 4;
constexpr double kMaxSeconds = 1.0;
// A smaller amount would fit into the buffers and into the bursts that shaped links allow. Less
// is sent only if a link or machine is too slow even for this amount; there, the warm-up has
// already used up the bursts.
constexpr std::size_t kMinBytes = std::size_t{4} << 20;
constexpr double kMaxSecondsForMinTries = 2.0;
constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

// Slows an end down to a fraction of its warm-up speed. Each segment is due at a time counted from
// the start, because with a fixed sleep after each segment, the buffers would fill during the sleep
// and hide the slowdown.
class Pace {
 public:
  Pace(double speed, double natural_per_second) : per_second_(speed * natural_per_second) {
    held_back_ = speed < 1.0;
  }
  // Waits until the segment that ends at this byte is due.
  void hold_back(std::size_t bytes) const {
    if (!held_back_) return;
    const std::chrono::duration<double> due(static_cast<double>(bytes) / per_second_);
    std::this_thread::sleep_until(start_ + std::chrono::duration_cast<Clock::duration>(due));
  }

 private:
  double per_second_;
  bool held_back_ = false;
  Clock::time_point start_ = Clock::now();
};

template <class Step>
void in_segments(std::span<std::byte> data, const Pace& pace, const Step& step) {
  for (std::size_t at = 0; at < data.size(); at += kSegment) {
    const std::size_t length = std::min(kSegment, data.size() - at);
    pace.hold_back(at + length);
    step(data.subspan(at, length));
  }
}

std::uint64_t seed_of(const ExchangePlan& plan, bool from_first) {
  return pattern_word(plan.seed, from_first ? 0 : 1);
}

struct NaturalSpeed {  // bytes per second
  double best = 0;
  double worst = std::numeric_limits<double>::infinity();  // without the bursts of a shaped link
  double held_back = 1;  // fraction of the speed that remains under an injected fault
};

// Encodes a fraction between 2^-16 and 1 in one byte.
std::byte to_byte(double part) {
  return static_cast<std::byte>(std::clamp(std::lround(-16 * std::log2(part)), 0L, 255L));
}

double from_byte(std::byte byte) {
  return std::exp2(-std::to_integer<int>(byte) / 16.0);
}

// Fills buffers and opens windows, and measures the natural speed with several pieces. The receiver
// acknowledges each piece. The acknowledgment also contains the fraction of this speed to which an
// injected fault limits the receiver; a slow link shows in the time of the pieces themselves.
NaturalSpeed warm_up(PairLink& link, std::span<std::byte> data, bool sender, double speed) {
  std::array<std::byte, 1> acknowledgment{};
  const std::size_t length = std::max<std::size_t>(data.size() / 8 / kWarmUpPieces, 1);
  NaturalSpeed natural;
  for (int i = 0; i < kWarmUpPieces; ++i) {
    const auto start = Clock::now();
    if (sender) {
      link.send(data.first(length));
      link.receive(acknowledgment);
    } else {
      link.receive(data.first(length));
      acknowledgment[0] = to_byte(speed);
      link.send(acknowledgment);
    }
    const double per_second = static_cast<double>(length) / seconds_since(start);
    natural.best = std::max(natural.best, per_second);
    natural.worst = std::min(natural.worst, per_second);
  }
  natural.held_back = std::min(speed, from_byte(acknowledgment[0]));
  return natural;
}

// The sender chooses the amount of data, because a link may be slow in one direction only.
std::size_t send_amount(PairLink& link, std::size_t most, double per_second) {
  const std::uint64_t amount = amount_for(most, per_second);
  std::array<std::byte, sizeof amount> word{};
  std::memcpy(word.data(), &amount, sizeof amount);
  link.send(word);
  return amount;
}

std::size_t receive_amount(PairLink& link, std::size_t most) {
  std::uint64_t amount = 0;
  std::array<std::byte, sizeof amount> word{};
  link.receive(word);
  std::memcpy(&amount, word.data(), sizeof amount);
  if (amount == 0 || amount > most) {
    throw RuntimeError("the other end announced an invalid amount of data");
  }
  return amount;
}

void send_data(PairLink& link, const ExchangePlan& plan, std::span<std::byte> data,
               ExchangeResult& result) {
  fill_pattern(data, seed_of(plan, plan.first));
  const NaturalSpeed natural = warm_up(link, data, true, plan.faults.speed);
  const std::size_t amount = send_amount(link, data.size(), natural.held_back * natural.worst);
  const std::int64_t lost_before = link.lost_bytes();
  in_segments(data.first(amount), Pace(plan.faults.speed, natural.best),
              [&link](std::span<std::byte> segment) { link.send(segment); });
  std::array<std::byte, 1> acknowledgment{};
  link.receive(acknowledgment);  // everything has arrived and is verified
  const auto lost = std::max<std::int64_t>(0, link.lost_bytes() - lost_before);
  result.lost = static_cast<double>(lost) / static_cast<double>(amount) + plan.faults.drop;
}

void receive_data(PairLink& link, const ExchangePlan& plan, std::span<std::byte> data,
                  ExchangeResult& result) {
  const NaturalSpeed natural = warm_up(link, data, false, plan.faults.speed);
  const std::span<std::byte> measured = data.first(receive_amount(link, data.size()));
  const auto start = Clock::now();
  in_segments(measured, Pace(plan.faults.speed, natural.best),
              [&link](std::span<std::byte> segment) { link.receive(segment); });
  result.received_per_second = static_cast<double>(measured.size()) / seconds_since(start);
  if (plan.faults.corrupt) measured[measured.size() / 2] ^= std::byte{0x10};
  result.wrong_bytes = count_wrong(measured, seed_of(plan, !plan.first));
  std::array<std::byte, 1> acknowledgment{};
  link.send(acknowledgment);
}

double measure_latency(PairLink& link, bool first) {
  std::array<std::byte, 8> word{};
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUpRoundTrips + kRoundTrips; ++i) {
    const auto start = Clock::now();
    if (first) link.send(word);
    link.receive(word);
    if (!first) link.send(word);
    if (i >= kWarmUpRoundTrips) seconds.push_back(seconds_since(start));
  }
  return median(seconds) / 2;
}

}  // namespace

std::size_t amount_for(std::size_t most, double per_second) {
  const double enough = kMaxSeconds * per_second;
  const double fewest =
      std::min(static_cast<double>(kMinBytes),
               std::max(kMaxSecondsForMinTries * per_second, static_cast<double>(kLeastBytes)));
  return static_cast<std::size_t>(std::min(static_cast<double>(most), std::max(enough, fewest)));
}

ExchangeResult exchange(PairLink& link, const ExchangePlan& plan) {
  ExchangeResult result;
  result.latency_seconds = measure_latency(link, plan.first);
  // Both directions use the same buffer, because touching new pages takes as long as the transfer.
  // Old data of one direction cannot pass for data of the other, which uses a different pattern.
  std::vector<std::byte> data(plan.bytes);
  if (plan.first) {
    send_data(link, plan, data, result);
    receive_data(link, plan, data, result);
  } else {
    receive_data(link, plan, data, result);
    send_data(link, plan, data, result);
  }
  result.via = link.via();
  return result;
}

}  // namespace ddp::check
