// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/nccl/nccl_end.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "ddp_runtime/check/findings/pattern.h"
#include "ddp_runtime/check/findings/threshold.h"
#include "ddp_runtime/check/net/measure/nccl/gpu_transfer.h"
#include "ddp_runtime/check/net/measure/pair_links.h"

namespace ddp::check {
namespace {

constexpr std::chrono::milliseconds kRedial{100};
constexpr int kGpuRoundTrips = 20;
constexpr int kGpuWarmUps = 5;
constexpr std::size_t kPingBytes = 8;

// Retries, because the other end may not be listening yet.
std::unique_ptr<PairLink> call_until(const NcclEnd& end, Deadline deadline) {
  for (;; std::this_thread::sleep_for(kRedial)) {
    try {
      return call_peer(end.host, end.port, end.token, deadline);
    } catch (const NetError&) {
      if (Clock::now() + kRedial >= deadline) throw;
    }
  }
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

  // A barrier between the two ends.
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

  // Measures bytes per second with an eighth of the memory, in the second transfer, because the
  // first transfer sets up the connection.
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

  // An end with an injected slowdown takes as long as a slow end would.
  double timed(bool sends, const GpuTransfer& amount, double natural) {
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
    const GpuTransfer amount =
        plan_transfer(end_.bytes, std::min(natural * end_.faults.speed, theirs));
    tell(amount);
    const double per_second = timed(true, amount, natural);
    meet();  // the other end has verified the data
    return per_second;
  }

  void receive(ExchangeResult& result) {
    const double natural = warm_up(false);
    tell(natural * end_.faults.speed);
    const auto amount = told<GpuTransfer>();
    require_possible(amount, end_.bytes);
    std::vector<std::byte> data(amount.bytes);
    gpu_.upload(memory_, data);  // old contents must not pass for received data
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
  std::uint64_t memory_;  // GPU memory
};

}  // namespace

ExchangeResult measure_by_nccl(const NcclEnd& end, Deadline deadline) {
  const bool first = !end.host.empty();
  CudaGpu gpu(end.cuda_library);
  const auto control =
      first ? call_until(end, deadline) : await_peer(listen_on(end.port), end.token, deadline);
  nccl::UniqueId id{};
  const auto bytes_of_id = std::as_writable_bytes(std::span(id.bytes));
  if (first) {
    id = NcclPair::make_id(end.nccl_library);
    control->send(bytes_of_id);
  } else {
    control->receive(bytes_of_id);
  }
  NcclPair pair(end.nccl_library, gpu, id, first ? 0 : 1);
  return Measurement(end, *control, gpu, pair).run();
}

}  // namespace ddp::check
