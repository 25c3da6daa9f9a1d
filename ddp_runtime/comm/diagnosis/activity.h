#pragma once
// What a rank is doing and did last, so that others can tell why it did not come. A flight
// recorder: always on, a few strings, read only when something takes too long or has failed.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/work.h"

namespace ddp::comm {

// One operation as others see it.
struct OperationRecord {
  // Collectives are numbered from 0, the same on all ranks that call the same ones; nothing for
  // messages between two ranks.
  std::optional<std::uint64_t> number;
  std::string what;       // "all_reduce #17 (bucket 3: fc2.weight to fc2.bias)"
  std::string signature;  // what must be the same on all ranks: "all_reduce: sum of 1024 float32"
  double begun_ago = 0;   // seconds before the snapshot
  std::optional<double> seconds;  // how long it took; nothing while it runs
  bool failed = false;
};

// A snapshot of one rank.
struct Activity {
  std::uint64_t collectives_begun = 0;
  std::string phase;     // what the program says it is doing: "epoch 2, step 117: forward"
  double phase_ago = 0;  // seconds since it said so
  std::vector<OperationRecord> recent;  // oldest first

  // The last operation if it runs or has failed: what the rank waits in, or has waited in in vain.
  const OperationRecord* stuck_in() const noexcept;
  const OperationRecord* last_completed() const noexcept;
};

// Throws RuntimeError for a text that no rank would write: it comes over the network.
nlohmann::json to_json(const Activity& activity);
Activity activity_from_json(const nlohmann::json& json);

// Thread-safe.
class ActivityLog {
 public:
  void begin(std::optional<std::uint64_t> number, std::string what, std::string signature);
  void end(bool failed);
  void set_phase(std::string phase);
  Activity snapshot() const;

 private:
  struct Entry {
    std::optional<std::uint64_t> number;
    std::string what;
    std::string signature;
    Clock::time_point begun;
    std::optional<Clock::time_point> ended;
    bool failed = false;
  };

  static constexpr std::size_t kKept = 32;

  mutable std::mutex mutex_;
  std::uint64_t collectives_begun_ = 0;
  std::string phase_;
  Clock::time_point phase_since_ = Clock::now();
  std::deque<Entry> entries_;
};

}  // namespace ddp::comm
