// SPDX-License-Identifier: Apache-2.0
// The flight recorder keeps this rank's current and latest operations, so that the other ranks can
// find out why it is missing from a collective. It is always on, because it costs only a few
// strings, and is read only when an operation takes too long or has failed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/work.h"

namespace ddp::comm {

// Channel name of a group's own collectives. Other collectives belong to a channel of the group;
// see Group::channel.
constexpr char kMainChannel[] = "main";

// Where an operation stands on a GPU.
enum class OnGpu : std::uint8_t {
  no,       // an operation of the host, or not launched yet
  held,     // launched, but earlier work of the program, or on which it waits, has not ended
  running,  // launched, and nothing holds it
};

// One operation, as reported to other ranks.
struct OperationRecord {
  std::string channel = kMainChannel;
  // Each rank numbers the collectives of a channel from 0, so the same collective has the same
  // number on all ranks. Messages between two ranks have no number.
  std::optional<std::uint64_t> number;
  std::string what;       // "all_reduce #17 (bucket 3: fc2.weight to fc2.bias)"
  std::string signature;  // must be the same on all ranks: "all_reduce: sum of 1024 float32"
  double begun_ago = 0;   // seconds before the snapshot
  std::optional<double> seconds;  // duration; nullopt while it runs
  bool failed = false;
  OnGpu on_gpu = OnGpu::no;
};

// A snapshot of one rank.
struct RankSnapshot {
  std::map<std::string, std::uint64_t>
      collectives_begun;                // number of collectives begun, by channel
  std::set<std::string> groups;         // the channels that only some ranks have, this one included
  std::string phase;                    // the program's current phase: "epoch 2, step 117: forward"
  double phase_ago = 0;                 // seconds since the phase began
  std::vector<OperationRecord> recent;  // oldest first

  // For each channel, the oldest operation after the last successful one. The rank is waiting in
  // this operation, or was waiting in it until it failed together with all operations queued behind
  // it.
  std::vector<const OperationRecord*> stuck_in() const;
  const OperationRecord* stuck_in(const std::string& channel) const noexcept;
  std::uint64_t begun_in(const std::string& channel) const;
  const OperationRecord* last_completed() const noexcept;
};

// Parsing throws RuntimeError if the text, which comes over the network, is malformed.
nlohmann::json to_json(const RankSnapshot& snapshot);
RankSnapshot snapshot_from_json(const nlohmann::json& json);

// Thread-safe.
class FlightRecorder {
 public:
  // Registers a channel that only some of the ranks have, this one included, so that a rank that
  // does not have it is not missed in it. Returns false if it is registered already. Throws
  // UsageError if there are too many for a snapshot.
  bool add_group(const std::string& channel);

  // Passed to end(). At most one operation per channel runs at a time.
  using Handle = std::uint64_t;
  Handle begin(std::optional<std::uint64_t> number, std::string what, std::string signature,
               const std::string& channel = kMainChannel);
  void end(Handle handle, bool failed);
  void set_on_gpu(Handle handle, OnGpu state);
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
    OnGpu on_gpu = OnGpu::no;
  };

  // With the lock held. nullptr if it is not kept anymore.
  Entry* find(Handle handle);

  static constexpr std::size_t kKept = 32;
  static constexpr std::size_t kMaxGroups = 128;

  mutable std::mutex mutex_;
  Handle next_ = 0;
  std::map<std::string, std::uint64_t> collectives_begun_;
  std::set<std::string> groups_;
  std::string phase_;
  Clock::time_point phase_since_ = Clock::now();
  std::deque<Entry> entries_;
};

}  // namespace ddp::comm
