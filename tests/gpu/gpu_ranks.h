// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, on the GPUs of this machine, with the real CUDA and NCCL.
//
// GPU_TEST_CUDA_LIBRARY and GPU_TEST_NCCL_LIBRARY name the files of the two libraries; without them
// the dynamic linker finds them. They may also name the fake of tests/unit/comm/fake_gpu, which
// shows on a machine without a GPU that these tests are right.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/device/nccl_group.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/p2p/p2p_group.h"
#include "ddp_runtime/comm/transport/in_process_transport.h"

namespace ddp::comm::gpu {

inline std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Machine {
  DeviceLibraries libraries;
  int gpus = 0;
  std::string missing;  // why there is no GPU; empty if there is one
};

inline const Machine& machine() {
  static const Machine found = [] {
    Machine m;
    try {
      m.libraries.device = cuda::load_runtime(environment("GPU_TEST_CUDA_LIBRARY"));
      require_device(m.libraries.device, 0);
      m.libraries.device.device_count(&m.gpus);
      m.libraries.nccl = nccl::load(environment("GPU_TEST_NCCL_LIBRARY"));
    } catch (const std::exception& e) {
      m.missing = e.what();
    }
    return m;
  }();
  return found;
}

inline const cuda::Runtime& calls() {
  return machine().libraries.device;
}

// The GPUs of `ranks` ranks: one each, or all on one.
struct Placement {
  std::vector<int> gpus;
  std::string impossible;  // the reason; empty if it is possible
};

inline Placement place(int ranks) {
  constexpr int kFirstToShareGpus = 23000;
  Placement p{{}, machine().missing};
  if (!p.impossible.empty()) return p;
  const bool enough = machine().gpus >= ranks;
  for (int rank = 0; rank < ranks; ++rank) p.gpus.push_back(enough ? rank : 0);
  if (enough) return p;
  const std::string version = nccl::release_of(machine().libraries.nccl.version);
  if (machine().libraries.nccl.version < kFirstToShareGpus) {
    p.impossible = "two ranks need two GPUs, or NCCL 2.30 to share one; this is NCCL " + version;
  } else if (environment("NCCL_MULTI_RANK_GPU_ENABLE") != "1") {
    p.impossible = "two ranks share one GPU only with NCCL_MULTI_RANK_GPU_ENABLE=1";
  }
  return p;
}

// A stream of this thread's GPU.
class Stream {
 public:
  Stream() {
    check_device(calls(), calls().stream_create(&stream_, cuda::kNonBlockingStream, 0),
                 "create a stream");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { calls().stream_destroy(stream_); }

  DeviceStream get() const { return stream_; }
  // Waits for all work on the stream. Throws RuntimeError after two minutes.
  void finish() const {
    const auto deadline = Clock::now() + std::chrono::minutes(2);
    for (;;) {
      const int code = calls().stream_query(stream_);
      if (code != cuda::kNotReady) return check_device(calls(), code, "finish a stream");
      calls().take_last_error();
      if (Clock::now() > deadline) throw RuntimeError("a stream is not done after two minutes");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  DeviceStream stream_ = nullptr;
};

// Memory of this thread's GPU that is not the group's.
inline std::shared_ptr<std::byte> device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check_device(calls(), calls().allocate(&memory, bytes), "allocate memory");
  return {static_cast<std::byte*>(memory), [](std::byte* p) { calls().free(p); }};
}

// Begins to copy, on the stream of the buffers, and does not wait.
inline void copy(const Buffer& from, const Buffer& to) {
  check_device(calls(),
               calls().copy(to.data, from.data, from.bytes(), cuda::kCopyDefault, to.stream),
               "copy");
}
inline void fill(const Buffer& buffer, unsigned char byte) {
  check_device(calls(), calls().set_bytes(buffer.data, byte, buffer.bytes(), buffer.stream),
               "set memory");
}

using Bytes = std::vector<unsigned char>;

// Write and read on `stream`, and wait for the end.
inline void write(const Buffer& buffer, const Bytes& bytes, const Stream& stream) {
  if (bytes.size() != buffer.bytes()) throw std::logic_error("write: wrong size");
  check_device(
      calls(),
      calls().copy(buffer.data, bytes.data(), bytes.size(), cuda::kCopyDefault, stream.get()),
      "copy to the GPU");
  stream.finish();
}
inline Bytes read(const Buffer& buffer, const Stream& stream) {
  Bytes bytes(buffer.bytes());
  check_device(
      calls(),
      calls().copy(bytes.data(), buffer.data, bytes.size(), cuda::kCopyDefault, stream.get()),
      "copy from the GPU");
  stream.finish();
  return bytes;
}

// Work that keeps a stream of this thread's GPU busy for milliseconds, in the order of 30 on a
// large GPU. Its memory is never freed: cudaFree waits for all kernels of the GPU, also for one
// that waits for a rank which is about to free memory.
class Delay {
 public:
  Delay() {
    static std::mutex mutex;
    static std::map<int, Memory> by_gpu;
    int gpu = 0;
    check_device(calls(), calls().get_device(&gpu), "be used by this thread");
    const std::lock_guard lock(mutex);
    memory_ = by_gpu[gpu];
    if (memory_.begin == nullptr) memory_ = by_gpu[gpu] = allocate();
  }
  void put_on(const Stream& stream) const {
    constexpr int kTimes = 100;
    for (int i = 0; i < kTimes; ++i) {
      check_device(calls(), calls().set_bytes(memory_.begin, i, memory_.bytes, stream.get()),
                   "set memory");
    }
  }

 private:
  struct Memory {
    void* begin = nullptr;
    std::size_t bytes = 0;
  };
  static Memory allocate() {
    constexpr std::size_t kWanted = std::size_t{1} << 30;
    constexpr std::size_t kOfFake = std::size_t{8} << 20;
    Memory memory;
    for (const std::size_t bytes : {kWanted, kOfFake}) {
      if (calls().allocate(&memory.begin, bytes) == cuda::kSuccess) {
        memory.bytes = bytes;
        return memory;
      }
      calls().take_last_error();
    }
    throw RuntimeError("the GPU has no memory left for this test");
  }
  Memory memory_;
};

struct Rank {
  int rank;
  Group& group;  // of GPUs
  Group& host;   // on which it is built
  FailureState& failures;
  const NcclOptions& options;
  const Stream& stream;

  Buffer on_stream(std::byte* memory, std::size_t count, ElementType type) const {
    return {memory, count, type, Memory::device, stream.get()};
  }
};

inline NcclOptions options_of(int gpu) {
  NcclOptions options;
  options.device = gpu;
  options.cuda_library = environment("GPU_TEST_CUDA_LIBRARY");
  options.nccl_library = environment("GPU_TEST_NCCL_LIBRARY");
  options.arena_bytes = std::size_t{1} << 20;
  return options;
}

// Runs a rank on each of `gpus`. Returns each rank's error; empty if it had none. As in a real job,
// the first error ends all ranks. `change` adjusts the options of a rank.
inline std::vector<std::string> run_ranks(
    const std::vector<int>& gpus, const std::function<void(Rank)>& body,
    const std::function<void(int rank, NcclOptions&)>& change = {}) {
  const int ranks = static_cast<int>(gpus.size());
  FailureState failures;
  auto transports = make_in_process_transports(ranks);
  std::vector<std::string> errors(gpus.size());
  const auto run = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    const auto fail = [&](const std::exception& e) {
      errors[index] = e.what();
      failures.fail({rank, e.what()});
    };
    NcclOptions options = options_of(gpus[index]);
    if (change) change(rank, options);
    try {
      P2pGroup host(std::move(transports[index]), failures);
      NcclGroup group(host, failures, options);
      try {
        check_device(calls(), calls().set_device(group.device()), "be used by this thread");
        const Stream stream;
        body({rank, group, host, failures, options, stream});
        stream.finish();
      } catch (const std::exception& e) {
        fail(e);  // before the group is destroyed, because peers may be waiting for this rank
      }
    } catch (const std::exception& e) {
      fail(e);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (auto& thread : threads) thread.join();
  return errors;
}

}  // namespace ddp::comm::gpu
