// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL that is not blocking.
//
// Note [Non-blocking communicators]. Only a non-blocking communicator can be aborted when another
// rank fails, so all of ours are. Their calls return before they are done: NCCL hands even a plain
// collective to a thread of its own, and only when ncclCommGetAsyncError no longer says "in
// progress" is the kernel on the stream. An event that is recorded earlier does not include the
// collective, and the next call on the communicator is an error. So each call is followed by
// settled() until it returns true, and only then by an event.
#pragma once

#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/gpu/cuda_runtime.h"
#include "ddp_runtime/gpu/nccl.h"

namespace ddp::comm {

struct DeviceLibraries {
  cuda::Runtime device;
  nccl::Functions nccl;
};

// All functions but throw_if_failed() and those that abort are for one thread at a time.
class Communicator {
 public:
  struct Rank {
    int rank = 0;
    int size = 1;
    int max_ctas = 0;  // 0: NCCL's choice
  };

  // Begins to connect this rank with the others that have the same id. This thread's current device
  // becomes the rank's. Throws RuntimeError, as all functions do: BrokenCollective if NCCL says
  // that the cause is another process or the network.
  Communicator(const DeviceLibraries& libraries, const nccl::UniqueId& id, const Rank& rank);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Aborts, unless destroy() or abort() was called.
  ~Communicator();

  const DeviceLibraries& libraries() const noexcept { return libraries_; }

  // Whether the last call is done. Throws RuntimeError if it failed.
  bool settled();
  // Throws RuntimeError with NCCL's description of an error that its own threads found. Does
  // nothing while another thread is in a call. Never blocks. For any thread.
  void throw_if_failed();

  // Each begins one call; see Note [Non-blocking communicators]. They throw RuntimeError.
  void all_reduce(const Buffer& data, ReduceOp op, DeviceStream stream);
  void reduce_scatter(const Buffer& input, const Buffer& output, ReduceOp op, DeviceStream stream);
  void all_gather(const Buffer& input, const Buffer& output, DeviceStream stream);
  void broadcast(const Buffer& data, int root, DeviceStream stream);
  struct Message {
    bool outgoing = false;
    Buffer data;
    int peer = 0;
  };
  // All messages at once: they do not wait for each other.
  void exchange(std::span<const Message> messages, DeviceStream stream);
  // Register memory with NCCL, which sets the handle until the call is settled; it stays nullptr if
  // this machine has no use for it. The library must have the function.
  void register_window(std::byte* memory, std::size_t bytes, nccl::Window* window);
  void register_memory(std::byte* memory, std::size_t bytes, void** handle);
  void deregister_window(nccl::Window window);
  void deregister_memory(void* handle);
  void begin_finish();
  // After begin_finish() is settled.
  void destroy();

  // Ends what runs and frees the communicator. No thread may be in one of the other calls; returns
  // false if one is. May block. For any thread.
  bool abort() noexcept;
  // The same, but waits for a thread that is in one of the other calls, or in abort().
  void abort_after_calls() noexcept;

 private:
  template <class Call>
  void call(std::string_view what, const Call& function);
  [[noreturn]] void fail(std::string_view what, int code) const;

  DeviceLibraries libraries_;
  std::mutex calls_;  // held by a thread that is in a call of NCCL
  nccl::Comm comm_ = nullptr;
};

// Calls settled() until it returns true. `meanwhile` is called while it does not, and may throw.
void settle(Communicator& communicator, const std::function<void()>& meanwhile);

}  // namespace ddp::comm
