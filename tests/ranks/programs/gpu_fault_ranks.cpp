// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that train on GPUs of the fake (tests/unit/comm/fake_gpu): consecutive
// all-reduces of device memory. Each process has a fake of its own, whose collectives complete
// without the other processes, up to number 20; later ones hang, as on real GPUs when a rank is
// missing.
//
// Usage: gpu_fault_ranks FAULT DIRECTORY     FAULT happens on rank 1
//   hang        no fault; the collectives hang until the timeout
//   nccl-error  NCCL reports an asynchronous error
//   echo        the same, and 0.1 s later rank 2 is killed: NCCL was faster
//   echo-usage  the same, and 0.1 s later rank 2 has a user error
//   lost-gpu    the GPU is lost
//   end-program an exception between two collectives
// Each rank writes its process ID to DIRECTORY/pid.R when its collectives hang, or before its
// fault, and its exit code to DIRECTORY/exit.R.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/errors.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/gpu/cuda_runtime.h"
#include "tests/unit/comm/fake_gpu/fake_gpu.h"

namespace {

using ddp::comm::World;

constexpr int kCompleted = 20;
constexpr int kFaultAfter = 10;
constexpr int kRemoteError = 6;  // ncclRemoteError

class Stream {
 public:
  explicit Stream(const ddp::cuda::Runtime& calls) : calls_(calls) {
    calls_.stream_create(&stream_, ddp::cuda::kNonBlockingStream, 0);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { calls_.stream_destroy(stream_); }
  ddp::comm::DeviceStream get() const { return stream_; }

 private:
  const ddp::cuda::Runtime& calls_;
  ddp::comm::DeviceStream stream_ = nullptr;
};

[[noreturn]] void fail_after_an_echo(const std::string& fault) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (fault == "echo") raise(SIGKILL);
  throw ddp::UsageError("no such file");
}

void train(World& world, const std::string& fault, const std::string& directory) {
  const auto calls = ddp::cuda::load_runtime(SLURM_DDP_FAKE_GPU);
  calls.set_device(*world.device());
  const Stream stream(calls);
  constexpr std::size_t kFloats = 1000;
  const auto memory = world.group().allocate(kFloats * sizeof(float));
  const ddp::comm::Buffer gradients{memory.get(), kFloats, ddp::comm::ElementType::f32,
                                    ddp::comm::Memory::device, stream.get()};
  if (fault.starts_with("echo")) {
    world.group().all_reduce_value<std::int64_t>(0, ddp::comm::ReduceOp::sum);  // by the hosts
    if (world.rank() == 2) fail_after_an_echo(fault);
  }
  for (int step = 1;; ++step) {
    const auto work = world.group().all_reduce(gradients, ddp::comm::ReduceOp::sum, "gradients");
    if (step == kFaultAfter) {
      std::ofstream(fmt::format("{}/pid.{}", directory, world.rank())) << getpid() << '\n';
    }
    const bool at_fault = world.rank() == 1 && step == kFaultAfter;
    if (at_fault && fault == "lost-gpu") {
      ddp::fake::break_device(*world.device(), ddp::cuda::kUncorrectableMemoryError);
    }
    if (at_fault && fault == "end-program") throw std::runtime_error("the data is unreadable");
    work.wait_host();
  }
}

ddp::fake::Knobs knobs_of(const std::string& fault) {
  ddp::fake::Knobs knobs;
  knobs.others_elsewhere = true;
  knobs.never_completes = kCompleted;
  // NCCL's ranks, as the world's.
  if (fault == "nccl-error" || fault.starts_with("echo")) knobs.async_error[1] = kRemoteError;
  knobs.fail_after = kFaultAfter;
  return knobs;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string fault = argv[1];
  ddp::fake::reset(knobs_of(fault));
  ddp::comm::WorldOptions options;
  options.backend = ddp::comm::Backend::nccl;
  options.nccl.cuda_library = SLURM_DDP_FAKE_GPU;
  options.nccl.nccl_library = SLURM_DDP_FAKE_GPU;
  if (const char* seconds = std::getenv("GPU_FAULT_RANKS_TIMEOUT")) {
    options.group.limits.timeout = std::chrono::seconds(std::atoi(seconds));
  }
  int rank = 0;
  const int code = ddp::comm::run("gpu_fault_ranks", options, [&](World& world) {
    rank = world.rank();
    train(world, fault, argv[2]);
  });
  std::ofstream(fmt::format("{}/exit.{}", argv[2], rank)) << code << '\n';
  return code;
}
