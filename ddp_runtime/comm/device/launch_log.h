// SPDX-License-Identifier: Apache-2.0
// The order in which this rank launched collectives, over all channels of a device, in a form that
// two ranks can compare.
//
// Note [One order per device]. All channels of a group use one communicator, one stream and one
// launching thread. Two collectives that wait for other ranks may both need the whole GPU, so ranks
// that start them in different orders can wait for each other forever. NCCL therefore wants one
// order on all ranks, and one stream makes it the order on the device as well, as a chain of events
// between the streams of several communicators would do, without their memory and connections.
// A group of some of the ranks has all of these for itself: a rank is in several such groups, and
// their orders are not the same on all ranks that share one, for example if the stages of a
// pipeline communicate with their neighbors and with their replicas. Such groups may run at the
// same time, and NCCL's kernels for both then have to fit on the GPU, as they do by NCCL's own
// limits.
//
// The order is that of the calls: a thread of its own does not change it, but spares the caller the
// time until NCCL has a launch on the stream, which is the time of a thread start per collective.
// In backward, all hooks and layers call from one thread in an order that follows from the graph.
// If the graphs of two ranks differ, or two threads of the program call, the orders may differ, and
// collectives of equal size would exchange the wrong data without an error. Ranks could agree on
// each collective before its launch, but that would cost a message each. Instead, each rank sends
// the next one its order in the background and all report the first difference.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::comm {

// One message between two ranks: the last launches of one of them.
struct LaunchFrame {
  static constexpr std::size_t kLaunches = 24;
  static constexpr std::size_t kText = 144;
  struct Launch {
    std::uint64_t hash;  // of this launch and all before it
    std::array<char, kText> text;
  };

  std::uint64_t launched;                // number of launches so far
  std::uint64_t last;                    // 1: there will be no more
  std::array<Launch, kLaunches> latest;  // oldest first, for the numbers before `launched`
};

// Thread-safe.
class LaunchLog {
 public:
  // `signature` must be equal on all ranks; `text` describes the launch for people.
  void add(std::string_view signature, std::string text);
  std::uint64_t launched() const;
  // The hash of all launches.
  std::uint64_t hash() const;
  LaunchFrame frame(bool last) const;
  // Who compares, for the sentence.
  struct Ranks {
    int mine = 0;  // in the job
    int theirs = 0;
    std::string of_group = {};  // GroupName::after
  };
  // Compares the launches that both ranks have made. Returns a sentence on the first difference
  // that is known; nullopt if there is none.
  std::optional<std::string> difference(const LaunchFrame& theirs, const Ranks& ranks) const;

 private:
  static constexpr std::size_t kKept = 4096;
  struct Launch {
    std::uint64_t hash;
    std::string text;
  };

  mutable std::mutex mutex_;
  std::uint64_t launched_ = 0;
  std::deque<Launch> kept_;  // the latest
};

}  // namespace ddp::comm
