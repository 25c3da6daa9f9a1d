// SPDX-License-Identifier: Apache-2.0
// Ranks that share one GPU and send its memory through the host, by MPI.
//
// Usage: staged_ranks CUDA_LIBRARY BACKEND [kill]
// With `kill`, rank 1 is killed while the others wait for it.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/gpu/cuda_runtime.h"

namespace {

using ddp::comm::Buffer;
using ddp::comm::DeviceStream;
using ddp::comm::ElementType;
using ddp::comm::Memory;
using ddp::comm::ReduceOp;
using ddp::comm::World;

class Gpu {
 public:
  explicit Gpu(const std::string& library) : calls_(ddp::cuda::load_runtime(library)) {
    check_device(calls_, calls_.stream_create(&stream_, ddp::cuda::kNonBlockingStream, 0),
                 "create a stream");
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() { calls_.stream_destroy(stream_); }

  DeviceStream stream() const { return stream_; }
  void copy(void* to, const void* from, std::size_t bytes) const {
    check_device(calls_, calls_.copy(to, from, bytes, ddp::cuda::kCopyDefault, stream_), "copy");
    while (calls_.stream_query(stream_) == ddp::cuda::kNotReady) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  ddp::cuda::Runtime calls_;
  DeviceStream stream_ = nullptr;
};

void reduce(World& world, const Gpu& gpu, std::size_t count) {
  std::vector<std::int64_t> values(count);
  std::iota(values.begin(), values.end(), world.rank());
  const std::size_t bytes = count * sizeof(std::int64_t);
  const auto memory = world.group().allocate(bytes);
  gpu.copy(memory.get(), values.data(), bytes);
  const Buffer data{memory.get(), count, ElementType::i64, Memory::device, gpu.stream()};
  world.group().all_reduce(data, ReduceOp::sum, "gradients").wait();
  gpu.copy(values.data(), memory.get(), bytes);
  const auto ranks = static_cast<std::int64_t>(world.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t expected = ranks * static_cast<std::int64_t>(i) + ranks * (ranks - 1) / 2;
    if (values[i] == expected) continue;
    throw std::runtime_error(fmt::format("element {} is {}, not {}", i, values[i], expected));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool kills = argc > 3;
  ddp::comm::WorldOptions options;
  options.backend = ddp::comm::parse_backend(argv[2]);
  options.gpus = true;
  options.nccl.cuda_library = argv[1];
  options.nccl.nccl_library = argv[1];  // the fake has both
  options.nccl.device = 0;
  options.staging.memory_bytes = 1 << 20;  // the largest buffer is sent in pieces
  options.group.announce = [](const std::string& text) { fmt::print("{}\n", text); };
  return ddp::comm::run("staged_ranks", options, [&](World& world) {
    const Gpu gpu(argv[1]);
    for (const std::size_t count : {1, 1000, 100000, 400000}) reduce(world, gpu, count);
    if (kills && world.rank() == 1) raise(SIGKILL);
    reduce(world, gpu, 1000);
    if (world.is_leader())
      fmt::print("{} ranks on GPU {} are done\n", world.size(), *world.device());
  });
}
