#include "ddp_runtime/check/net/measure/nccl_end.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "ddp_runtime/check/clock.h"
#include "ddp_runtime/check/net/locate/threshold.h"
#include "ddp_runtime/check/net/measure/pair_links.h"
#include "ddp_runtime/check/net/measure/pattern.h"

namespace ddp::check {
namespace {

constexpr std::chrono::milliseconds kRedial{100};
constexpr int kGpuRoundTrips = 20;
constexpr int kGpuWarmUps = 5;
constexpr std::size_t kPingBytes = 8;
constexpr std::size_t kLeastAmount = 4096;
// As much as a fast link carries in a fifth of a second, in pieces of at most an eighth of a second
// of a slow one.
constexpr double kSeconds = 0.2;
constexpr std::uint64_t kFewestPieces = 8;
constexpr std::uint64_t kMostPieces = 64;

// The other end may not listen yet.
std::unique_ptr<PairLink> call_until(const NcclEnd& end, Deadline deadline) {
  for (;; std::this_thread::sleep_for(kRedial)) {
    try {
      return call_peer(end.host, end.port, end.exchange, deadline);
    } catch (const NetError&) {
      if (Clock::now() + kRedial >= deadline) throw;
    }
  }
}

// What is measured: this many pieces of so many bytes.
struct Amount {
  std::uint64_t bytes = 0;
  std::uint64_t pieces = 0;
};

Amount amount_for(std::size_t most, double per_second) {
  if (!std::isfinite(per_second) || per_second <= 0)
    throw RuntimeError("the other end announced an impossible speed");
  const double slow_piece = per_second / static_cast<double>(kFewestPieces);
  Amount amount;
  amount.bytes = static_cast<std::uint64_t>(std::clamp(
      slow_piece, static_cast<double>(std::min(most, kLeastAmount)), static_cast<double>(most)));
  const double pieces = kSeconds * per_second / static_cast<double>(amount.bytes);
  amount.pieces = std::clamp(static_cast<std::uint64_t>(pieces), kFewestPieces, kMostPieces);
  return amount;
}

class Measurement {
 public:
  Measurement(const NcclEnd& end, PairLink& control, CudaGpu& gpu, NcclPair& pair)
      : end_(end),
        control_(control),
        gpu_(gpu),
        pair_(pair),
        memory_(gpu.allocate(std::max(end.bytes, kPingBytes))) {}

  ExchangeResult run() {
    ExchangeResult result;
    result.latency_seconds = latency();
    if (first()) {
      result.sent_per_second = send();
      receive(result);
    } else {
      receive(result);
      result.sent_per_second = send();
    }
    return result;
  }

 private:
  bool first() const { return !end_.host.empty(); }
  std::uint64_t seed(bool from_first) const { return pattern_word(end_.exchange, from_first); }

  template <class Value>
  void tell(const Value& value) {
    std::array<std::byte, sizeof value> bytes{};
    std::memcpy(bytes.data(), &value, sizeof value);
    control_.send(bytes);
  }

  template <class Value>
  Value told() {
    Value value{};
    std::array<std::byte, sizeof value> bytes{};
    control_.receive(bytes);
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  // Neither end is ahead of the other afterwards.
  void meet() {
    std::array<std::byte, 1> word{};
    if (first()) control_.send(word);
    control_.receive(word);
    if (!first()) control_.send(word);
  }

  double latency() {
    std::vector<double> seconds;
    for (int i = 0; i < kGpuWarmUps + kGpuRoundTrips; ++i) {
      const auto start = Clock::now();
      for (const bool sends : {first(), !first()}) {
        sends ? pair_.send(memory_, kPingBytes) : pair_.receive(memory_, kPingBytes);
        pair_.wait();
      }
      if (i >= kGpuWarmUps) seconds.push_back(seconds_since(start));
    }
    return median(seconds) / 2;
  }

  // Bytes per second of an eighth of the memory, the second time: the first one connects.
  double warm_up(bool sends) {
    const std::size_t part = std::max<std::size_t>(end_.bytes / 8, 1);
    double per_second = 0;
    for (int i = 0; i < 2; ++i) {
      meet();
      const auto start = Clock::now();
      sends ? pair_.send(memory_, part) : pair_.receive(memory_, part);
      pair_.wait();
      per_second = static_cast<double>(part) / seconds_since(start);
    }
    return per_second;
  }

  // An end that is to be slow waits for the time at which a slow one would have come so far.
  double timed(bool sends, const Amount& amount, double natural) {
    const bool held_back = end_.faults.speed < 1.0;
    meet();
    const auto start = Clock::now();
    for (std::uint64_t piece = 1; piece <= amount.pieces; ++piece) {
      sends ? pair_.send(memory_, amount.bytes) : pair_.receive(memory_, amount.bytes);
      if (!held_back) continue;
      pair_.wait();
      const std::chrono::duration<double> due(static_cast<double>(piece * amount.bytes) /
                                              (end_.faults.speed * natural));
      std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(due));
    }
    pair_.wait();
    return static_cast<double>(amount.pieces * amount.bytes) / seconds_since(start);
  }

  double send() {
    std::vector<std::byte> data(end_.bytes);
    fill_pattern(data, seed(first()));
    gpu_.upload(memory_, data);
    const double natural = warm_up(true);
    const auto theirs = told<double>();
    const Amount amount = amount_for(end_.bytes, std::min(natural * end_.faults.speed, theirs));
    tell(amount);
    const double per_second = timed(true, amount, natural);
    meet();  // the other end has looked at what came
    return per_second;
  }

  void receive(ExchangeResult& result) {
    const double natural = warm_up(false);
    tell(natural * end_.faults.speed);
    const auto amount = told<Amount>();
    if (amount.bytes == 0 || amount.bytes > end_.bytes || amount.pieces > kMostPieces)
      throw RuntimeError("the other end announced an impossible amount of data");
    std::vector<std::byte> data(amount.bytes);
    gpu_.upload(memory_, data);  // what was there must not pass for what is to come
    result.received_per_second = timed(false, amount, natural);
    gpu_.download(data, memory_);
    if (end_.faults.corrupt) data[data.size() / 2] ^= std::byte{0x10};
    result.wrong_bytes = count_wrong(data, seed(!first()));
    meet();
  }

  const NcclEnd& end_;
  PairLink& control_;
  CudaGpu& gpu_;
  NcclPair& pair_;
  std::uint64_t memory_;  // of the GPU
};

}  // namespace

ExchangeResult measure_by_nccl(const NcclEnd& end, Deadline deadline) {
  const bool first = !end.host.empty();
  CudaGpu gpu(end.cuda_library);
  const auto control =
      first ? call_until(end, deadline) : await_peer(listen_on(end.port), end.exchange, deadline);
  NcclPair::Id id{};
  if (first) {
    id = NcclPair::make_id(end.nccl_library);
    control->send(id);
  } else {
    control->receive(id);
  }
  NcclPair pair(end.nccl_library, gpu, id, first ? 0 : 1);
  return Measurement(end, *control, gpu, pair).run();
}

}  // namespace ddp::check
