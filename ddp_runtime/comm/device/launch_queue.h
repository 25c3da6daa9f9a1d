// SPDX-License-Identifier: Apache-2.0
// The launches of a group on one device in the order of the calls, for all channels of the group;
// see Note [One order per device]. One thread launches. A second thread, the watchdog, watches what
// was launched: it notices the end of each collective, errors that NCCL's own threads find, waits
// that take too long, different orders on other ranks, and the failure of a rank, after which it
// aborts the communicator. It only polls and never blocks, except for the abort.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/device/communicator.h"
#include "ddp_runtime/comm/device/device_clock.h"
#include "ddp_runtime/comm/device/device_work.h"
#include "ddp_runtime/comm/device/launch_log.h"
#include "ddp_runtime/comm/device/nccl_start.h"
#include "ddp_runtime/comm/device/order_exchange.h"
#include "ddp_runtime/comm/failure/state/wait_timer.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/comm/transport/link_limits.h"

namespace ddp::comm {

class LaunchQueue : public std::enable_shared_from_this<LaunchQueue> {
 public:
  // One launch calls this on the launching thread, with the stream of the launches.
  using Call = std::function<void(Communicator&, DeviceStream)>;

  struct Settings {
    int device = 0;
    LinkLimits limits;  // the time limits
    std::chrono::milliseconds watch_interval{2};
  };
  struct Request {
    std::string channel;
    std::string name;       // "all_reduce"
    std::string label;      // may be empty
    std::string signature;  // must be the same on all ranks
    Call call;
    // The launch comes after the work that is on this stream now; without it, only after earlier
    // launches.
    std::optional<DeviceStream> after;
    bool blocks = false;               // its Work's wait() waits on the host
    std::shared_ptr<const void> keep;  // held until the launch is done
  };

  // Collective. `host` and `failures` must outlive the object.
  LaunchQueue(StartedNccl started, Group& host, FailureState& failures, const Settings& settings);
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;
  ~LaunchQueue();

  // All functions below are thread-safe, except for finish().

  // Throws PeerFailure after a failure.
  Work launch(Request request);
  // A message starts when the program waits for the Work of any message, together with all messages
  // that are requested by then. A kernel that sends holds up the stream until the receiver has
  // started, so ranks that first send and then receive would wait for each other forever if each
  // message was a launch.
  Work message(const std::string& channel, const Communicator::Message& message,
               const std::string& label, std::shared_ptr<const void> keep = {});
  // Returns when all requested launches are done and none holds memory anymore. Messages that have
  // not started do not count. Throws PeerFailure after a failure.
  void wait_until_idle();
  // A hash of the collectives that were requested.
  std::uint64_t history() const { return log_.hash(); }

  // Collective, unless a rank has failed. Waits for all launches, calls `release` for what must be
  // undone while the communicator exists, and ends the communicator. Called once; no request may
  // follow. Does not throw: a failure is in `failures`.
  void finish(const std::function<void(Communicator&)>& release) noexcept;
  // Ends all on this rank without waiting for the others, and without reporting a failure: the
  // error because of which this rank gives up is reported by the code that catches it. finish()
  // must follow.
  void give_up() noexcept { given_up_ = true; }

 private:
  // What was requested, and where it stands. Several messages are one launch.
  struct Launch {
    std::string channel;
    std::string what;  // "all_reduce #17 (bucket 3)"
    std::string signature;
    std::optional<std::uint64_t> number;
    Call call;
    std::vector<EventPool::Event> after;  // held until the end, for the time of the last one
    std::vector<std::shared_ptr<DeviceWork>> works;
    std::vector<std::shared_ptr<const void>> keep;
    EventPool::Event end;  // set by the launch
    std::optional<FlightRecorder::Handle> record;
    bool held = false;  // see OnGpu
    std::exception_ptr error;
  };
  struct PendingMessage {
    Communicator::Message message;
    std::string what;
    EventPool::Event after;
    std::shared_ptr<DeviceWork> work;
    std::shared_ptr<const void> keep;
  };

  // With the lock held.
  void require_open() const;
  void push(Launch launch);

  void start_messages();
  void launch_all();
  void start(Launch& launch) noexcept;
  bool put_in_flight(Launch& launch);
  void watch() noexcept;
  void look(WaitTimer& timer);
  void retire(WaitTimer& timer);
  void note_start(Launch& launch);
  void end_works(const Launch& launch, Clock::time_point now);
  bool reached(const EventPool::Event& event, const Launch& launch) const;
  void throw_if_over() const;
  void end_all_by_abort() noexcept;
  void end_late(const Launch& launch) noexcept;
  std::exception_ptr reason_of_end() const noexcept;
  void end_with(const std::exception_ptr& cause, const Launch& launch);
  void end_communicator(const std::function<void(Communicator&)>& release);
  void fail_by_current_exception() noexcept;
  void check(WaitTimer& timer, bool held) const;
  std::string waiting(const std::string& what, std::chrono::milliseconds waited) const;
  void enter_thread(const char* name) const;

  std::shared_ptr<EventPool> events_;
  std::shared_ptr<void> stream_;
  std::unique_ptr<Communicator> communicator_;
  Group& host_;
  FailureState& failures_;
  FlightRecorder& recorder_;
  Settings settings_;
  int rank_;  // in the job
  GroupName name_;
  LaunchLog log_;
  OrderExchange order_;  // used by the watchdog
  std::atomic<bool> given_up_{false};
  std::string front_;         // the launch whose end the watchdog awaits
  Clock::time_point looked_;  // when it had not ended yet
  DeviceClock clock_;         // used by the watchdog
  Clock::time_point last_end_;

  mutable std::mutex mutex_;
  std::condition_variable wake_launcher_;
  std::condition_variable wake_watchdog_;
  std::condition_variable changed_;
  std::uint64_t next_number_ = 0;
  std::deque<Launch> queue_;
  std::vector<PendingMessage> messages_;
  std::deque<Launch> in_flight_;
  std::string launching_;  // the launch between queue_ and in_flight_; empty if there is none
  bool stopping_ = false;  // there will be no more requests
  bool drained_ = false;   // and all are launched, on all ranks
  bool over_ = false;      // the watchdog has nothing left to do
  bool ended_ = false;     // the watchdog does not end what is launched from now on
  std::thread launcher_;
  std::thread watchdog_;
};

}  // namespace ddp::comm
