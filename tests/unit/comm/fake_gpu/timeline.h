// SPDX-License-Identifier: Apache-2.0
// Finds conflicting accesses to memory that are not ordered, with vector clocks. A timeline is a
// stream or a thread.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>

namespace ddp::fake {

// The positions on all timelines that have happened before: timeline to position.
using Moment = std::map<int, std::uint64_t>;

inline void join(Moment& moment, const Moment& other) {
  for (const auto& [timeline, position] : other) {
    auto& mine = moment[timeline];
    if (position > mine) mine = position;
  }
}

class AccessLog {
 public:
  struct Access {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    bool writes = false;
    int timeline = 0;
    std::uint64_t position = 0;
    std::string who;
  };

  // Records an access at `moment`. Returns an earlier access with which it conflicts: one of them
  // writes, and `moment` does not include the earlier one.
  std::optional<Access> add(const Access& access, const Moment& moment) {
    std::optional<Access> conflict;
    for (auto old = accesses_.begin(); old != accesses_.end();) {
      const bool overlaps = old->begin < access.end && access.begin < old->end;
      const auto seen = moment.find(old->timeline);
      const bool ordered = seen != moment.end() && seen->second >= old->position;
      if (overlaps && (old->writes || access.writes) && !ordered) conflict = *old;
      const bool covered = access.begin <= old->begin && old->end <= access.end;
      const bool obsolete = covered && ordered && (access.writes || !old->writes);
      old = obsolete ? accesses_.erase(old) : std::next(old);
    }
    accesses_.push_back(access);
    return conflict;
  }
  void forget(std::uintptr_t begin, std::uintptr_t end) {
    accesses_.remove_if([&](const Access& a) { return a.begin >= begin && a.end <= end; });
  }

 private:
  std::list<Access> accesses_;
};

}  // namespace ddp::fake
