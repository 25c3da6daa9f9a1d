// SPDX-License-Identifier: Apache-2.0
// What the guards of one step on one node share: memory in a file that is in no directory. With the
// plugin, slurmstepd makes it before it starts the tasks. Without, the guard of the node's first
// rank does, and the others find it among the files that this one has open. Each guard writes what
// it sees of its rank, and reads the rest.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "spank_plugin/guard/step_end.h"

namespace ddp::guard {

// The name of a guard's process.
inline constexpr const char* kGuardName = "ddp-guard";

// Makes the file; none if the kernel refuses, and then each guard knows only of itself. `name` is
// what find_node_record() looks for.
FileDescriptor make_node_record(const std::string& name = {}) noexcept;

// Returns the files of this name that guards of the same user have open, at most 8. `proc` is
// "/proc".
std::vector<FileDescriptor> find_node_records(const std::string& proc, std::string_view name);

// A text of at most 8 * `Words` characters; what is longer is cut off. One that is read while it
// changes may be a mixture of both.
template <std::size_t Words>
class SharedText {
 public:
  void set(std::string_view text) noexcept {
    std::array<std::uint64_t, Words> words{};
    std::memcpy(words.data(), text.data(), std::min(text.size(), sizeof words));
    for (std::size_t i = 0; i < Words; ++i) words_[i] = words[i];
  }
  std::string get() const {
    std::string text;
    for (const auto& part : words_) {
      const std::uint64_t word = part;
      text.append(reinterpret_cast<const char*>(&word), sizeof word);
    }
    return text.substr(0, text.find('\0'));
  }

 private:
  std::array<std::atomic<std::uint64_t>, Words> words_{};
};

// One rank. Written by its guard alone; each value can be read at any time. Times are milliseconds
// of Clock, which is the same in all processes of a node; 0 for never.
struct RankSlot {
  enum State : std::uint32_t { absent, running, finished, failed };
  std::atomic<std::uint32_t> state{absent};
  std::atomic<std::uint32_t> rank{0};
  std::atomic<std::uint32_t> has_left{0};  // its guard has nothing more to say
  std::atomic<std::int32_t> guard{0};      // numbers of processes
  std::atomic<std::int32_t> task{0};
  std::atomic<std::int32_t> stopped{0};  // the one of stopped_since
  std::atomic<std::int64_t> seen_at{0};  // the guard's last look at its rank
  std::atomic<std::int64_t> quiet_since{0};
  std::atomic<std::int64_t> stopped_since{0};
  std::atomic<std::int64_t> uninterruptible_since{0};
  // Of a rank that makes no progress: see watch::RankWait.
  SharedText<4> channel;
  SharedText<16> place;
};

class NodeRecord {
 public:
  static constexpr std::size_t kMaxRanks = 1024;

  // Takes the file's number, or -1 for none.
  explicit NodeRecord(int file);
  NodeRecord(const NodeRecord&) = delete;
  NodeRecord& operator=(const NodeRecord&) = delete;
  ~NodeRecord();

  // Switches to the record in a file that was found later, and returns whether it could. Refuses
  // that of an earlier program of the same step, in which the first rank has ended or this rank is
  // known already.
  bool join(int file, std::size_t local_rank) noexcept;
  bool is_shared() const noexcept { return !own_; }

  // Counts this rank among those that failed by themselves. True if it is the first of its node:
  // what the others say is most often an echo.
  bool is_first_failure() noexcept;

  // The key of the step, in hexadecimal digits, with which the guards of its nodes find each other.
  // Empty if there is none. Set before there are guards.
  void set_key(std::string_view digits) noexcept { page_->key.set(digits); }
  std::string key() const { return page_->key.get(); }

  // The step ends: the tasks of this node, too. Of several decisions the soonest counts.
  void end_step(const StepEnd& end) noexcept;
  std::optional<StepEnd> step_end() const noexcept;
  // Whether all nodes know that; on another node than the hub's, whether the hub does.
  void set_step_end_told(const StepEnd& end) noexcept;
  bool is_step_end_told() const noexcept { return page_->told_step_end == page_->step_end; }
  // Whether they know at least of a later one.
  bool is_any_step_end_told() const noexcept {
    return page_->step_end == 0 || page_->told_step_end != 0;
  }

  // This guard leaves: it has nothing more to say. Returns how many have left, with this one.
  std::uint32_t leave() noexcept { return page_->left.fetch_add(1) + 1; }

  // A guard sees that all of them should ask where their ranks stand, until this time.
  void want_places_until(std::int64_t time) noexcept { page_->places_wanted_until = time; }
  std::int64_t places_wanted_until() const noexcept { return page_->places_wanted_until; }

  // How ranks of other nodes have ended, for the guard that speaks next: finished or failed; absent
  // if it is not known. Of ranks below kMaxOthers.
  static constexpr std::uint32_t kMaxOthers = 1U << 16U;
  void remember_end(std::uint32_t rank, RankSlot::State state) noexcept {
    if (rank < kMaxOthers) page_->ends[rank] = static_cast<std::uint8_t>(state);
  }
  RankSlot::State end_of(std::uint32_t rank) const noexcept {
    return static_cast<RankSlot::State>(page_->ends[rank].load());
  }

  // By local rank, below kMaxRanks.
  RankSlot& slot(std::size_t local_rank) noexcept { return page_->slots[local_rank]; }

 private:
  bool map(int file) noexcept;

  struct Page {
    std::atomic<std::uint32_t> failures{0};
    std::atomic<std::uint32_t> left{0};
    std::atomic<std::int64_t> places_wanted_until{0};
    std::atomic<std::uint64_t> step_end{0};  // 0 for none
    std::atomic<std::uint64_t> told_step_end{0};
    SharedText<8> key;
    std::array<std::atomic<std::uint8_t>, kMaxOthers> ends{};
    RankSlot slots[kMaxRanks];  // NOLINT(*-avoid-c-arrays): the layout is shared by processes
  };
  std::unique_ptr<Page> own_;  // without a file
  Page* page_ = nullptr;       // mapped memory, zero at first; or own_
};

}  // namespace ddp::guard
