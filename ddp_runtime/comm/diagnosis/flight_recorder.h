// What a rank is doing and did last, so that others can tell why it did not come. A flight
// recorder: always on, a few strings, read only when something takes too long or has failed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/work.h"

namespace ddp::comm {

// The collectives of a group itself; others belong to one of its channels, see Group::channel.
constexpr char kMainChannel[] = "main";

// One operation as others see it.
struct OperationRecord {
  std::string channel = kMainChannel;
  // Collectives of a channel are numbered from 0, the same on all ranks that call the same ones;
  // nothing for messages between two ranks.
  std::optional<std::uint64_t> number;
  std::string what;       // "all_reduce #17 (bucket 3: fc2.weight to fc2.bias)"
  std::string signature;  // what must be the same on all ranks: "all_reduce: sum of 1024 float32"
  double begun_ago = 0;   // seconds before the snapshot
  std::optional<double> seconds;  // how long it took; nothing while it runs
  bool failed = false;
};

// A snapshot of one rank.
struct RankSnapshot {
  std::map<std::string, std::uint64_t> collectives_begun;  // by channel
  std::string phase;     // what the program says it is doing: "epoch 2, step 117: forward"
  double phase_ago = 0;  // seconds since it said so
  std::vector<OperationRecord> recent;  // oldest first

  // Of each channel the operation that runs, or that failed first of those that failed last: what
  // the rank waits in, or has waited in in vain before all that was queued behind it failed too.
  std::vector<const OperationRecord*> stuck_in() const;
  const OperationRecord* stuck_in(const std::string& channel) const noexcept;
  std::uint64_t begun_in(const std::string& channel) const;
  const OperationRecord* last_completed() const noexcept;
};

// Throws RuntimeError for a text that no rank would write: it comes over the network.
nlohmann::json to_json(const RankSnapshot& snapshot);
RankSnapshot snapshot_from_json(const nlohmann::json& json);

// Thread-safe.
class FlightRecorder {
 public:
  // Returns what end() is to be told. At most one operation per channel runs at a time.
  using Handle = std::uint64_t;
  Handle begin(std::optional<std::uint64_t> number, std::string what, std::string signature,
               const std::string& channel = kMainChannel);
  void end(Handle handle, bool failed);
  void set_phase(std::string phase);
  RankSnapshot snapshot() const;

 private:
  struct Entry {
    Handle handle = 0;
    std::string channel;
    std::optional<std::uint64_t> number;
    std::string what;
    std::string signature;
    Clock::time_point begun;
    std::optional<Clock::time_point> ended;
    bool failed = false;
  };

  static constexpr std::size_t kKept = 32;

  mutable std::mutex mutex_;
  Handle next_ = 0;
  std::map<std::string, std::uint64_t> collectives_begun_;
  std::string phase_;
  Clock::time_point phase_since_ = Clock::now();
  std::deque<Entry> entries_;
};

}  // namespace ddp::comm
