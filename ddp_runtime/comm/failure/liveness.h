// Which ranks are lost though nothing says so: a stopped process and a machine that has vanished
// close no connection. Pure.
//
// What tells the living from the lost:
// - A connection that the other kernel closed or reset (FIN, RST) belongs to a process that has
//   ended. That is certain and known at once; it is not decided here.
// - Both ends send a heartbeat every second, from a thread that never computes. A rank of which
//   nothing has been heard for `silence` is silent. Other errors of the connection (it timed out,
//   no route) say no more than that: the rank connects again as soon as the network lets it.
// - A silent rank is lost only if the data path stalls, too: some rank that can be heard has waited
//   for `LinkLimits::report_after` without anything moving. While all ranks make progress with each
//   other, the silent one is among them, and only the management network is out of order; while
//   all of them compute, nobody is harmed.
// - If the silent rank's kernel acknowledges what is sent to it, network and machine are well and
//   the process is stopped. Otherwise the machine is down or cut off.
//
// So with the default limits a stopped process or a vanished machine is named within 10 s, a stop
// of some seconds is forgiven, and so is an outage of any length of a network that carries no data.
// Where one network carries both, an outage that is longer than `silence` ends the job.
//
// All times are of a RunningClock: a job that is suspended as a whole goes on when it is resumed.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::comm {

struct LivenessLimits {
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  std::chrono::milliseconds silence = std::chrono::seconds(8);
  // A silent peer whose kernel is silent, too, is connected with anew.
  std::chrono::milliseconds reconnect = std::chrono::seconds(3);
  // A process that is still there so long after a failure (blocked in MPI, for example) is ended.
  std::chrono::milliseconds exit = std::chrono::minutes(1);
};

// With another `silence`, which the others must fit in: as many heartbeats and attempts to connect.
LivenessLimits limits_for(std::chrono::milliseconds silence);
// For a world of so many ranks: rank 0 is to spend a few percent of a core on heartbeats at most.
LivenessLimits scaled(LivenessLimits limits, int ranks);

enum class LossKind : std::uint8_t {
  killed,       // its connection closed without a goodbye
  stopped,      // silent, but its machine answers
  unreachable,  // silent, and so is its machine
};
const char* to_string(LossKind kind);

// A rank that is lost. `who` is what it said of itself: "node2, process 4711".
struct Loss {
  int rank = 0;
  std::string who;
  LossKind kind = LossKind::killed;
};

// What is known of a rank that has not said goodbye.
struct SignsOfLife {
  int rank = 0;
  std::string who;
  std::chrono::milliseconds silent{0};  // since its last message
  bool acknowledges = false;            // its kernel has all that was sent to it
};

// The ranks that are lost; empty if none is for certain. `stalled`: some rank that is heard waits.
// Ranks that are about to be as silent are counted with those that are: a machine takes all of its
// ranks with it, whose last heartbeats were not sent at once.
std::vector<Loss> find_lost(std::span<const SignsOfLife> ranks, bool stalled,
                            const LivenessLimits& limits);

// One sentence on all of them, grouped by node and by kind. `silence`: see LivenessLimits.
std::string describe(std::span<const Loss> losses, std::chrono::milliseconds silence);

// "node2" of "node2, process 4711".
std::string node_of(const std::string& who);

}  // namespace ddp::comm
