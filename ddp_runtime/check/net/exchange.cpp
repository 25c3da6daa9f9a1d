#include "ddp_runtime/check/net/exchange.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "ddp_runtime/check/net/pattern.h"
#include "ddp_runtime/check/net/threshold.h"

namespace ddp::check {
namespace {

using Clock = std::chrono::steady_clock;

// Both ends cut the data at the same places: over MPI a message is received as it was sent.
constexpr std::size_t kSegment = std::size_t{4} << 20;
constexpr int kRoundTrips = 40;
constexpr int kWarmUpRoundTrips = 8;
constexpr int kWarmUpPieces = 4;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Holds an end that is to be slow back to a part of the speed it had in the warm-up. Sleeping for a
// share of each segment's time would not do: buffers fill meanwhile and hide it.
class Pace {
 public:
  Pace(double speed, double natural_per_second) : per_second_(speed * natural_per_second) {
    held_back_ = speed < 1.0;
  }
  // Until it is time for the segment that ends at this byte.
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

// Opens buffers and windows, and tells what speed is natural here: that of the best of some pieces,
// each of which the receiver acknowledges.
double warm_up(PairLink& link, std::span<std::byte> data, bool sender) {
  std::array<std::byte, 1> acknowledgement{};
  const std::size_t length = std::max<std::size_t>(data.size() / 8 / kWarmUpPieces, 1);
  double best = 0;
  for (int i = 0; i < kWarmUpPieces; ++i) {
    const auto start = Clock::now();
    if (sender) {
      link.send(data.first(length));
      link.receive(acknowledgement);
    } else {
      link.receive(data.first(length));
      link.send(acknowledgement);
    }
    best = std::max(best, static_cast<double>(length) / seconds_since(start));
  }
  return best;
}

void send_data(PairLink& link, const ExchangePlan& plan) {
  std::vector<std::byte> data(plan.bytes);
  fill_pattern(data, seed_of(plan, plan.first));
  const double natural = warm_up(link, data, true);
  in_segments(data, Pace(plan.faults.speed, natural),
              [&link](std::span<std::byte> segment) { link.send(segment); });
  std::array<std::byte, 1> acknowledgement{};
  link.receive(acknowledgement);  // everything has arrived and is checked
}

void receive_data(PairLink& link, const ExchangePlan& plan, ExchangeResult& result) {
  std::vector<std::byte> data(plan.bytes);
  const double natural = warm_up(link, data, false);
  const auto start = Clock::now();
  in_segments(data, Pace(plan.faults.speed, natural),
              [&link](std::span<std::byte> segment) { link.receive(segment); });
  result.received_per_second = static_cast<double>(data.size()) / seconds_since(start);
  if (plan.faults.corrupt) data[data.size() / 2] ^= std::byte{0x10};
  result.wrong_bytes = count_wrong(data, seed_of(plan, !plan.first));
  std::array<std::byte, 1> acknowledgement{};
  link.send(acknowledgement);
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

ExchangeResult exchange(PairLink& link, const ExchangePlan& plan) {
  ExchangeResult result;
  result.latency_seconds = measure_latency(link, plan.first);
  if (plan.first) {
    send_data(link, plan);
    receive_data(link, plan, result);
  } else {
    receive_data(link, plan, result);
    send_data(link, plan);
  }
  return result;
}

}  // namespace ddp::check
