// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/gpu/gpu_copies.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <thread>

#include "base/deadline.h"
#include "base/errors.h"
#include "base/subprocess.h"
#include "ddp_runtime/check/findings/pattern.h"
#include "ddp_runtime/check/node/gpu/nvml.h"
#include "ddp_runtime/gpu/cuda_driver.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxCopyGpus = 16;
constexpr int kRounds = 3;
constexpr int kCopiesPerRound = 4;

template <std::size_t Size>
void write_text(std::array<char, Size>& to, std::string_view text) {
  const std::size_t length = std::min(text.size(), Size - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

// The results are in memory that both processes share, so that those of a process that was killed
// are not lost.
struct SharedResult {
  bool measured;
  double bytes_per_second;
  std::int64_t wrong_bytes;
  int code;
  std::array<char, 160> trouble;
};
struct SharedGpu {
  std::array<char, 32> bus_address;
  std::array<char, 160> trouble;
  SharedResult to_gpu, from_gpu;
  bool link_known;
  std::uint64_t pcie_generation, pcie_width;
};
struct SharedPair {
  bool attempted, direct;
  SharedResult result;
};
struct Shared {
  std::array<char, 160> trouble, under_way;
  std::size_t gpus;
  std::array<SharedGpu, kMaxCopyGpus> of_gpu;
  std::array<std::array<SharedPair, kMaxCopyGpus>, kMaxCopyGpus> of_pair;  // from, to
};

class SharedMemory {
 public:
  SharedMemory()
      : memory_(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0)) {
    if (memory_ == MAP_FAILED) throw RuntimeError("there is no memory for the results of copies");
    shared_ = std::construct_at(static_cast<Shared*>(memory_));
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(memory_, sizeof(Shared)); }
  Shared& operator*() const noexcept { return *shared_; }

 private:
  void* memory_;
  Shared* shared_ = nullptr;
};

class CudaError : public RuntimeError {
 public:
  CudaError(int number, const std::string& text) : RuntimeError(text), code(number) {}
  int code;
};

void require(const cuda::Driver& driver, cuda::Code code, const char* what) {
  if (code == cuda::kSuccess) return;
  throw CudaError(code, fmt::format("cannot {}: {}", what, cuda::error_text(driver, code)));
}

// One GPU with a stream and two pieces of memory, which the driver frees with the process.
struct CopyGpu {
  int number = 0;
  int device = 0;
  cuda::Context context = nullptr;
  cuda::Stream stream = nullptr;
  cuda::Memory source = 0;
  cuda::Memory target = 0;
  bool usable = false;
};

class Copier {
 public:
  Copier(const CopyOptions& options, Shared& shared)
      : options_(options),
        shared_(shared),
        driver_{gpu::SharedLibrary(options.cuda_library)},
        observer_(options.nvml_library) {}

  void run() {
    open_gpus();
    for (auto& gpu : gpus_) copy_with_host(gpu);
    for (auto& from : gpus_) {
      for (auto& to : gpus_) {
        if (from.number != to.number && from.usable && to.usable) copy_between(from, to);
      }
    }
    write_text(shared_.under_way, "");
  }

 private:
  SharedGpu& results(const CopyGpu& gpu) {
    return shared_.of_gpu.at(static_cast<std::size_t>(gpu.number));
  }
  void now(const std::string& what) { write_text(shared_.under_way, what); }
  std::string name(const CopyGpu& gpu) { return results(gpu).bus_address.data(); }

  void open_gpus() {
    now("starting the driver");
    int count = 0;
    const cuda::Code code = driver_.init(0);
    if (code != cuda::kNoDevice) require(driver_, code, "start");
    if (code == cuda::kSuccess) require(driver_, driver_.count(&count), "count the GPUs");
    if (count == 0) throw CudaError(0, "no GPU is visible to programs");
    gpus_.resize(std::min(static_cast<std::size_t>(count), kMaxCopyGpus));
    shared_.gpus = gpus_.size();
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      gpus_[i].number = static_cast<int>(i);
      try {
        open(gpus_[i]);
      } catch (const CudaError& error) {
        write_text(results(gpus_[i]).trouble, error.what());
        results(gpus_[i]).to_gpu.code = error.code;
      }
    }
  }

  void open(CopyGpu& gpu) {
    now(fmt::format("opening GPU {}", gpu.number));
    SharedGpu& shared = results(gpu);
    write_text(shared.bus_address, fmt::format("GPU {}", gpu.number));
    require(driver_, driver_.get(&gpu.device, gpu.number), "find the GPU");
    std::array<char, 32> address{};
    if (driver_.bus_address(address.data(), static_cast<int>(address.size()) - 1, gpu.device) ==
        cuda::kSuccess) {
      shared.bus_address = address;
    }
    for (const auto& busy : options_.busy) {
      if (is_same_bus_address(busy, name(gpu))) throw CudaError(0, "another program uses the GPU");
    }
    require(driver_, driver_.retain(&gpu.context, gpu.device), "use the GPU");
    use(gpu);
    require(driver_, driver_.create_stream(&gpu.stream, cuda::kNonBlockingStream),
            "create a stream");
    for (auto* memory : {&gpu.source, &gpu.target}) {
      require(driver_, driver_.allocate(memory, options_.bytes), "allocate GPU memory");
    }
    if (data_ == nullptr) {
      data_ = allocate_pinned();
      back_ = allocate_pinned();
    }
    gpu.usable = true;
  }

  std::byte* allocate_pinned() {
    void* memory = nullptr;
    require(driver_, driver_.allocate_pinned(&memory, options_.bytes, cuda::kPortable),
            "allocate pinned memory");
    return static_cast<std::byte*>(memory);
  }

  void use(const CopyGpu& gpu) {
    require(driver_, driver_.set_current(gpu.context), "use the GPU");
  }

  bool idle(const CopyGpu& gpu) {
    const cuda::Code code = driver_.query(gpu.stream);
    if (code == cuda::kNotReady) return false;
    require(driver_, code, "copy");
    return true;
  }

  void wait(const CopyGpu& gpu) {
    while (!idle(gpu)) std::this_thread::yield();
  }

  // The fastest round, because other programs can only slow a round down. The first copy, which
  // sets up mappings, is not timed.
  template <class Copy>
  double speed_of(const CopyGpu& gpu, const Copy& copy) {
    copy();
    wait(gpu);
    double best = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto start = Clock::now();
      for (int i = 0; i < kCopiesPerRound; ++i) copy();
      wait(gpu);
      best = std::max(best, static_cast<double>(options_.bytes) * kCopiesPerRound /
                                std::max(seconds_since(start), 1e-9));
    }
    return best;
  }

  template <class Measure>
  void record(SharedResult& result, const Measure& measure) {
    try {
      measure(result);
      result.measured = true;
    } catch (const CudaError& error) {
      result.code = error.code;
      write_text(result.trouble, error.what());
    }
  }

  std::span<std::byte> data() { return {data_, options_.bytes}; }
  std::span<std::byte> back() { return {back_, options_.bytes}; }

  // Old contents must not pass for copied data.
  void clear(const CopyGpu& gpu, cuda::Memory memory) {
    require(driver_, driver_.clear(memory, 0, options_.bytes, gpu.stream), "clear memory");
    wait(gpu);
  }

  std::int64_t wrong_bytes_in(const CopyGpu& gpu, cuda::Memory memory, std::uint64_t seed) {
    std::fill(back().begin(), back().end(), std::byte{0});
    require(driver_, driver_.from_gpu(back_, memory, options_.bytes, gpu.stream), "copy back");
    wait(gpu);
    return count_wrong(back(), seed);
  }

  void copy_with_host(CopyGpu& gpu) {
    if (!gpu.usable) return;
    SharedGpu& shared = results(gpu);
    const auto seed = static_cast<std::uint64_t>(gpu.number) + 1;
    record(shared.to_gpu, [&](SharedResult& result) {
      now("copying to " + name(gpu));
      use(gpu);
      clear(gpu, gpu.source);
      fill_pattern(data(), seed);
      result.bytes_per_second = speed_of(gpu, [&] {
        require(driver_, driver_.to_gpu(gpu.source, data_, options_.bytes, gpu.stream), "copy");
      });
      result.wrong_bytes = wrong_bytes_in(gpu, gpu.source, seed);
    });
    if (!is_good(shared.to_gpu)) return no_longer(gpu);
    record(shared.from_gpu, [&](SharedResult& result) {
      now("copying from " + name(gpu));
      use(gpu);
      std::fill(back().begin(), back().end(), std::byte{0});
      result.bytes_per_second = speed_of(gpu, [&] {
        require(driver_, driver_.from_gpu(back_, gpu.source, options_.bytes, gpu.stream), "copy");
      });
      result.wrong_bytes = count_wrong(back(), seed);
    });
    if (!is_good(shared.from_gpu)) return no_longer(gpu);
    try {
      observe_link(gpu);
    } catch (const CudaError&) {
      no_longer(gpu);
    }
  }

  static bool is_good(const SharedResult& result) {
    return result.measured && result.wrong_bytes == 0;
  }
  // A GPU that damages data would also damage that of its partners.
  static void no_longer(CopyGpu& gpu) { gpu.usable = false; }

  // An idle link saves power by running slowly, and needs some time to become fast. The copies go
  // on while it is read.
  void observe_link(const CopyGpu& gpu) {
    constexpr double kWarmUp = 0.1;  // seconds
    SharedGpu& shared = results(gpu);
    const auto copy = [&] {
      for (int i = 0; i < kCopiesPerRound; ++i) {
        if (driver_.to_gpu(gpu.source, data_, options_.bytes, gpu.stream) != cuda::kSuccess) return;
      }
    };
    now("copying to " + name(gpu));
    const auto start = Clock::now();
    while (seconds_since(start) < kWarmUp) {
      copy();
      wait(gpu);
    }
    copy();
    const auto link = observer_.pcie_link(name(gpu));
    wait(gpu);
    if (!link) return;
    shared.pcie_generation = link->generation;
    shared.pcie_width = link->width;
    shared.link_known = true;
  }

  void copy_between(CopyGpu& from, CopyGpu& to) {
    SharedPair& pair = shared_.of_pair.at(static_cast<std::size_t>(from.number))
                           .at(static_cast<std::size_t>(to.number));
    pair.attempted = true;
    const auto seed =
        static_cast<std::uint64_t>(from.number) * 1000 + static_cast<std::uint64_t>(to.number) + 1;
    record(pair.result, [&](SharedResult& result) {
      now(fmt::format("copying from {} to {}", name(from), name(to)));
      use(from);
      pair.direct = enable_access(from, to);
      fill_pattern(data(), seed);
      require(driver_, driver_.to_gpu(from.source, data_, options_.bytes, from.stream), "copy");
      wait(from);
      use(to);
      clear(to, to.target);
      use(from);
      result.bytes_per_second = speed_of(from, [&] {
        require(driver_,
                driver_.between(to.target, to.context, from.source, from.context, options_.bytes,
                                from.stream),
                "copy");
      });
      use(to);
      result.wrong_bytes = wrong_bytes_in(to, to.target, seed);
    });
  }

  bool enable_access(const CopyGpu& from, const CopyGpu& to) {
    int possible = 0;
    if (driver_.can_access(&possible, from.device, to.device) != cuda::kSuccess) return false;
    if (possible == 0) return false;
    const cuda::Code code = driver_.enable_access(to.context, 0);
    return code == cuda::kSuccess || code == cuda::kPeerAccessAlreadyEnabled;
  }

  const CopyOptions& options_;
  Shared& shared_;
  const cuda::Driver driver_;
  const PcieObserver observer_;
  std::vector<CopyGpu> gpus_;
  std::byte* data_ = nullptr;  // pinned
  std::byte* back_ = nullptr;
};

std::string copy_all(const CopyOptions& options, Shared& shared) {
  try {
    Copier(options, shared).run();
  } catch (const RuntimeError& error) {
    write_text(shared.trouble, error.what());
  }
  return "end";
}

CopyResult result_of(const SharedResult& shared) {
  return {shared.measured, shared.bytes_per_second, shared.wrong_bytes, shared.code,
          shared.trouble.data()};
}

CopyFacts facts_of(const Shared& shared) {
  CopyFacts facts;
  facts.trouble = shared.trouble.data();
  for (std::size_t i = 0; i < std::min(shared.gpus, kMaxCopyGpus); ++i) {
    const SharedGpu& one = shared.of_gpu.at(i);
    GpuCopies gpu{one.bus_address.data(),
                  one.trouble.data(),
                  result_of(one.to_gpu),
                  result_of(one.from_gpu),
                  {},
                  {}};
    if (one.link_known) {
      gpu.pcie_generation.value = one.pcie_generation;
      gpu.pcie_width.value = one.pcie_width;
    }
    facts.gpus.push_back(std::move(gpu));
    for (std::size_t to = 0; to < std::min(shared.gpus, kMaxCopyGpus); ++to) {
      const SharedPair& pair = shared.of_pair.at(i).at(to);
      if (pair.attempted) facts.pairs.push_back({i, to, pair.direct, result_of(pair.result)});
    }
  }
  return facts;
}

}  // namespace

CopyFacts measure_copies(const CopyOptions& options) {
  const SharedMemory memory;
  Subprocess copies =
      Subprocess::calling([&options, &memory] { return copy_all(options, *memory); });
  const SubprocessOutput output = copies.wait(Clock::now() + options.timeout);
  CopyFacts facts = facts_of(*memory);
  if (output.text == "end") return facts;
  const std::string under_way = (*memory).under_way.data();
  facts.unfinished = fmt::format(
      "{} while {}", output.timed_out ? "no end in time" : "the driver's library crashed",
      under_way.empty() ? "loading the library" : under_way);
  return facts;
}

}  // namespace ddp::check
