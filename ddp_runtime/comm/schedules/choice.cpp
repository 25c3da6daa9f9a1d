// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace ddp::comm::schedules {
namespace {

// Above this size, gathering every rank's part would need too much memory, even if it saves time.
constexpr double kGatheredBytes = 4 << 20;
constexpr double kRingMayCost = 1.05;

int log2_up(int n) {
  return std::bit_width(static_cast<unsigned>(n) - 1);
}

double wire(double bytes, const CostModel& m) {
  return m.network.alpha + bytes * m.network.beta;
}

// The cost of a message that is added segment by segment while the rest of it arrives.
double wire_and_add(double bytes, const CostModel& m) {
  const auto [fast, slow] = std::minmax(m.network.beta, m.network.gamma);
  const double segment = std::min(bytes, static_cast<double>(m.segment_bytes));
  return m.network.alpha + bytes * slow + segment * fast;
}

double reduce_scatter_cost(const Rounds& rounds, double chunk, const CostModel& m) {
  double seconds = 0;
  for (const Round& round : rounds) seconds += wire_and_add(round.count * chunk, m);
  return seconds;
}

double all_gather_cost(const Rounds& rounds, double chunk, const CostModel& m) {
  double seconds = 0;
  for (const Round& round : rounds) seconds += wire(round.count * chunk, m);
  return seconds;
}

double cost_of_rounds(const Rounds& rounds, int n, std::size_t bytes, const CostModel& m) {
  const double chunk = static_cast<double>(bytes) / n;
  return reduce_scatter_cost(rounds, chunk, m) + all_gather_cost(rounds, chunk, m);
}

// Equals cost_of_rounds(ring_rounds(n), ...), without building a list of n - 1 equal rounds.
double ring_cost(int n, std::size_t bytes, const CostModel& m) {
  const double chunk = static_cast<double>(bytes) / n;
  return (n - 1) * (wire_and_add(chunk, m) + wire(chunk, m));
}

double doubling_cost(int n, std::size_t bytes, const CostModel& m) {
  const auto size = static_cast<double>(bytes);
  const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const double step = wire(size, m) + size * m.network.gamma;
  const double extra = n > power ? step + wire(size, m) : 0;
  return log2_up(power) * step + extra;
}

template <class Schedule, std::size_t N>
Schedule cheapest(const std::array<Schedule, N>& all, int n, std::size_t bytes,
                  const CostModel& m) {
  return *std::min_element(all.begin(), all.end(), [&](Schedule a, Schedule b) {
    return cost(a, n, bytes, m) < cost(b, n, bytes, m);
  });
}

const char* name(AllReduce schedule) {
  switch (schedule) {
    case AllReduce::doubling:
      return "doubling";
    case AllReduce::halving:
      return "halving";
    case AllReduce::ring:
      return "ring";
  }
  return "";
}

std::string size_text(std::size_t bytes) {
  if (bytes < (std::size_t{1} << 20)) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{:.3g} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

double cost(AllReduce schedule, int n, std::size_t bytes, const CostModel& m) {
  if (n < 2 || bytes == 0) return 0;
  switch (schedule) {
    case AllReduce::doubling:
      return doubling_cost(n, bytes, m);
    case AllReduce::halving:
      return cost_of_rounds(halving_rounds(n), n, bytes, m);
    case AllReduce::ring:
      return ring_cost(n, bytes, m);
  }
  return 0;
}

double cost(Broadcast schedule, int n, std::size_t bytes, const CostModel& m) {
  if (n < 2 || bytes == 0) return 0;
  const auto size = static_cast<double>(bytes);
  const double segment = std::min(size, static_cast<double>(m.segment_bytes));
  switch (schedule) {
    case Broadcast::tree:
      return log2_up(n) * wire(size, m);
    case Broadcast::chain:
      return (n - 2) * wire(segment, m) + wire(size, m);
    case Broadcast::scatter: {
      // Scatter and all-gather have the same cost: the scatter runs the rounds of the all-gather
      // backward, from the root alone.
      return 2 * all_gather_cost(halving_rounds(n), size / n, m);
    }
  }
  return 0;
}

double cost(InOrder schedule, int n, std::size_t bytes, const CostModel& m) {
  if (n < 2 || bytes == 0) return 0;
  const auto size = static_cast<double>(bytes);
  switch (schedule) {
    case InOrder::chain: {
      // Sums travel to the last rank, and results travel back. With two ranks, they do not share a
      // direction.
      const double segment = std::min(size, static_cast<double>(m.segment_bytes));
      const double hop = wire(segment, m) + segment * m.network.gamma;
      return 2 * (n - 1) * hop + (n > 2 ? 2 : 1) * (size - segment) * m.network.beta;
    }
    case InOrder::gather:
      return all_gather_cost(halving_rounds(n), size, m) + n * size * m.network.gamma;
  }
  return 0;
}

AllReduce choose_all_reduce(int n, std::size_t bytes, const CostModel& m) {
  const auto best = cheapest(std::array{AllReduce::doubling, AllReduce::halving}, n, bytes, m);
  const double ring = cost(AllReduce::ring, n, bytes, m);
  return ring <= kRingMayCost * cost(best, n, bytes, m) ? AllReduce::ring : best;
}

Broadcast choose_broadcast(int n, std::size_t bytes, const CostModel& m) {
  return cheapest(std::array{Broadcast::tree, Broadcast::chain, Broadcast::scatter}, n, bytes, m);
}

InOrder choose_in_order(int n, std::size_t bytes, const CostModel& m) {
  if (n * static_cast<double>(bytes) > kGatheredBytes) return InOrder::chain;
  return cheapest(std::array{InOrder::chain, InOrder::gather}, n, bytes, m);
}

Rounds choose_rounds(int n, std::size_t bytes, const CostModel& m) {
  const bool ring =
      cost(AllReduce::ring, n, bytes, m) <= kRingMayCost * cost(AllReduce::halving, n, bytes, m);
  return ring ? ring_rounds(n) : halving_rounds(n);
}

std::string describe(int n, const CostModel& m) {
  // Steps of a quarter of an octave are fine enough.
  constexpr int kStepsToAGibibyte = 80;  // from 1 KiB
  std::string text = fmt::format("latency {:.3g} us, {:.3g} Gbit/s per rank: all-reduce by ",
                                 m.network.alpha * 1e6, 8e-9 / m.network.beta);
  auto now = choose_all_reduce(n, 8, m);
  for (int step = 0; step <= kStepsToAGibibyte; ++step) {
    const auto bytes = static_cast<std::size_t>(1024 * std::exp2(step / 4.0));
    const auto next = choose_all_reduce(n, bytes, m);
    if (next == now) continue;
    text += fmt::format("{} up to {}, then ", name(now), size_text(bytes));
    now = next;
  }
  return text + name(now);
}

}  // namespace ddp::comm::schedules
