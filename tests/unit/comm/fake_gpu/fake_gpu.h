// SPDX-License-Identifier: Apache-2.0
// A fake of the CUDA runtime and of NCCL for machines without a GPU, as one library that exports
// the functions of both under their names. Ranks are threads of one process, each with its own
// device, whose memory is process memory.
//
// The fake can be wrong in the ways in which GPUs are. A stream is a queue, an event is a position
// in it, and a collective completes when the streams of all ranks have reached it, so an order that
// would deadlock on GPUs deadlocks here, and is reported with both orders. By default, each device
// runs one collective at a time. For each byte range, the fake keeps who read and wrote it, and
// reports an access whose stream or thread has not waited for an earlier one. This is a question of
// logical time, so the report does not depend on luck. It also reports calls that the libraries
// forbid.
//
// Nothing runs by itself: each call advances all streams as far as possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ddp::fake {

struct Knobs {
  int devices = 4;
  int driver_version = 13000;  // 0: no driver
  int runtime_version = 13000;
  int nccl_version = 22809;
  std::size_t memory = std::size_t{128} << 20;  // per device
  // Number of polls for which a call on a communicator is in progress. Only afterwards is its
  // kernel on the stream.
  int polls_in_progress = 3;
  int call_milliseconds = 0;  // for which a call on a communicator does not return
  int id_error = 0;           // result of ncclGetUniqueId after `ids` successes
  int ids = 0;
  std::map<int, int> init_error = {};   // by rank: result of ncclCommInitRankConfig
  int init_never_completes = 0;         // 1: all ranks stay in progress
  std::map<int, int> async_error = {};  // by rank: found after collective `fail_after`
  int fail_after = 0;                   // number of collectives
  int never_completes = -1;             // collectives of this number and later; -1: all complete
  // The other ranks are in other processes, where they have fakes of their own. Collectives then
  // complete as if all ranks had this rank's data, and messages do not.
  bool others_elsewhere = false;
  int collectives_at_once = 1;  // on each device; deadlocks are reported only with 1
  bool corrupts = false;        // reductions give wrong sums
  bool windows = true;          // ncclCommWindowRegister gives windows
  std::size_t page_locked = std::size_t{64} << 20;  // memory of the host
  // Whether copies may use memory of the host that is not page-locked. Real ones may, but block.
  bool pageable_copies = true;
  int polls_per_copy = 0;              // for which a copy does not run
  std::map<int, int> copy_error = {};  // by device: result of cudaMemcpyAsync
  bool clock_stands = false;           // the time of events passes only by pass()
};

// Forgets all devices and problems. No thread may use the fake meanwhile.
void reset(const Knobs& knobs = {});

// Misuse and races so far, one sentence each.
std::vector<std::string> problems();
// Objects that were created and not destroyed: "2 streams, 1 event"; empty if there are none.
std::string leaks();
// Bytes of page-locked memory that are allocated.
std::size_t page_locked_bytes();
// Number of ncclCommAbort calls.
int aborts();
// Number of threads that are in a call on a communicator.
int threads_in_calls();

// Calls on a communicator of this rank, except for ncclCommGetAsyncError and ncclCommAbort, do not
// return until unblock_calls().
void block_calls(int rank);
void unblock_calls();

// Stops all streams of a device, and lets them continue.
void hold(int device);
void release(int device);
// With Knobs::clock_stands: what streams do from now on happens this much later.
void pass(double milliseconds);
// A kernel of the program fails: later calls of this device return `code`.
void break_device(int device, int code);

struct Range {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// A kernel of the program on a stream of this thread's device.
void launch(void* stream, const std::string& name, const std::vector<Range>& reads,
            const std::vector<Range>& writes, const std::function<void()>& run);
// The memory is used again on a stream, after its last owner has dropped it.
void reuse(void* stream, Range range);
// This thread reads or writes device memory itself.
void touch(const std::string& who, Range range, bool writes);

// This thread captures a graph in CUDA's mode "thread local", until end_capture(): of its calls,
// those that allocate or free memory, or ask whether work has run, return the error of a capture
// and invalidate it, except in the mode "relaxed".
void begin_capture();
// Returns whether the capture is valid.
bool end_capture();

}  // namespace ddp::fake
