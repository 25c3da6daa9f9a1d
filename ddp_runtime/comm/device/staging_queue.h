// SPDX-License-Identifier: Apache-2.0
// Sends device memory through page-locked memory of the host: each call is copied from the GPU,
// communicated by a group of hosts, and copied back.
//
// Note [Staging]. A thread of the queue does all of this, so callers do not wait. It polls, because
// neither CUDA nor a group of hosts reports an end to a thread that also waits for the other one.
//
// One stream copies from the GPU and another one to it, so the GPU copies both ways at a time, and
// one call is copied while another one travels. The copies of a call wait for the work that was on
// the caller's stream when it was called, and for nothing that comes later, so they cannot wait for
// each other in a circle. Collectives may use the same memory one after the other: one that reads
// what an earlier one writes is copied from the GPU behind the copy to it.
//
// All ranks call the collectives in one order, in which this queue starts their copies and then
// their transfers. The memory of collectives is limited. The oldest collective of a rank always has
// room, because those before it have returned theirs, so the one that is the oldest on any rank
// ends, and then the next one. Messages have no common order and no limit: a rank whose received
// messages waited for room might keep the sender of the next one waiting forever.
//
// A stream cannot wait for a thread, only for an event that is recorded already. So Work::wait()
// blocks until the copy to the GPU is enqueued, which is after all ranks have sent their data, and
// then makes the stream wait for the end of the copy. Calls that only read their buffer, such as
// send(), end with the copy from the GPU, and their wait() does not wait for other ranks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/device/device_work.h"
#include "ddp_runtime/comm/device/event_pool.h"
#include "ddp_runtime/comm/device/page_locked_pool.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/failure/state/wait_timer.h"
#include "ddp_runtime/comm/group/work.h"
#include "ddp_runtime/comm/transport/link_limits.h"

namespace ddp::comm {

class StagingQueue {
 public:
  struct Settings {
    int rank = 0;
    int device = 0;
    std::string gpu;    // its PCI address, for errors
    std::string name;   // of the thread, at most 15 characters
    LinkLimits limits;  // the time limits
    std::size_t memory_bytes = 0;
  };
  struct Copy {
    std::byte* device = nullptr;
    std::size_t offset = 0;  // in the host memory of the piece
    std::size_t bytes = 0;
  };
  // A part of a call that is copied and sent at once.
  struct Piece {
    std::size_t bytes = 0;       // of host memory
    std::vector<Copy> out = {};  // from the GPU
    std::vector<Copy> back = {};
    // Starts the transfer of the copied data in the group of hosts.
    std::function<Work(std::byte* memory)> transfer = {};
  };
  struct Call {
    std::string what = {};                    // "all_reduce #3 (bucket 2)"
    std::vector<Piece> pieces = {};           // at least one
    std::optional<DeviceStream> stream = {};  // of the caller; nullopt without device memory
    bool is_message = false;                  // not in the order of the collectives
    bool only_reads = false;                  // done after the copies from the GPU
    bool blocks = false;                      // its Work's wait() waits on the host
    std::shared_ptr<const void> keep = {};    // held until the call is done
  };

  // `failures` must outlive the queue and all Works. Throws RuntimeError.
  StagingQueue(std::shared_ptr<EventPool> events, FailureState& failures, Settings settings);
  StagingQueue(const StagingQueue&) = delete;
  StagingQueue& operator=(const StagingQueue&) = delete;
  // Finishes all calls, unless a rank has failed or this one gave up. The group of hosts must
  // exist until then.
  ~StagingQueue();

  // Thread-safe. Throws PeerFailure after a failure.
  Work submit(Call call);
  // Thread-safe. Fills device memory with zeros and waits for the end.
  void fill_with_zeros(std::byte* memory, std::size_t bytes);
  // Ends all calls of this rank without waiting for the others, and without reporting a failure:
  // the code that catches the error because of which this rank gives up reports it.
  void give_up() noexcept;

 private:
  struct Shared;    // what the pieces of a call have in common
  struct UnderWay;  // a piece
  using Pieces = std::list<UnderWay>;

  void work_off() noexcept;
  bool take_new(bool moved);
  void throw_if_over() const;

  bool move_collectives();
  bool move_messages();
  void watch_gpu(WaitTimer& timer);
  const UnderWay* oldest_on_gpu() const;

  // Makes a step of a piece. Returns whether it was made. Names the call in errors.
  bool step(UnderWay& piece, bool (StagingQueue::*function)(UnderWay&));
  bool copy_out(UnderWay& piece);
  bool transfer(UnderWay& piece);
  bool copy_back(UnderWay& piece);
  bool has_ended(UnderWay& piece);
  static bool writes_what_is_read(const UnderWay& earlier, const UnderWay& later);
  bool may_read(const UnderWay& piece) const;
  void wait_for_writers(const UnderWay& piece) const;
  void enqueue(const std::vector<Copy>& copies, const UnderWay& piece, bool to_device) const;

  void fail_by_current_exception() noexcept;
  void end_all() noexcept;
  bool copies_have_ended(const UnderWay& piece) const noexcept;
  void let_end(const UnderWay& piece, Clock::time_point deadline) const noexcept;

  std::shared_ptr<EventPool> events_;
  FailureState& failures_;
  Settings settings_;
  std::shared_ptr<void> from_gpu_;  // streams
  std::shared_ptr<void> to_gpu_;
  std::shared_ptr<PageLockedPool> pool_;
  std::atomic<bool> given_up_{false};

  // Used by the thread.
  Pieces collectives_;
  Pieces messages_;
  int idle_polls_ = 0;
  std::uint64_t next_number_ = 0;
  std::optional<std::uint64_t> watched_;  // the piece and its phase

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<UnderWay> new_;
  bool stopping_ = false;  // there will be no more calls
  bool over_ = false;      // the thread ends
  std::thread thread_;
};

}  // namespace ddp::comm
