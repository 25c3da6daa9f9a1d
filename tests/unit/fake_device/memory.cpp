// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fake_device/memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/unit/comm/fake_gpu/machine.h"
#include "tests/unit/fake_device/recording.h"
#include "tests/unit/fake_device/streams.h"

namespace ddp::fake_device {
namespace {

struct Block {
  fake::Range range;
  c10::Stream stream;  // on which it was allocated
  int generation = 0;
  bool used_elsewhere = false;  // record_stream() was called
};

// What tensors have of each device.
struct Counts {
  std::mutex mutex;
  std::map<int, c10::CachingAllocator::Stat> of_device;
};

Counts& counts() {
  static Counts all;
  return all;
}

void count(c10::DeviceIndex device,
           const std::function<void(c10::CachingAllocator::Stat&)>& change) {
  const std::lock_guard lock(counts().mutex);
  change(counts().of_device[device]);
}

// Blocks that the program has freed, but kernels that have not run yet use.
struct Freed {
  std::mutex mutex;
  std::vector<fake::Range> ranges;
};

Freed& freed() {
  static Freed all;
  return all;
}

// libtorch's allocator calls CUDA in the mode "relaxed", so that it may allocate while a program
// captures.
class RelaxedMode {
 public:
  RelaxedMode() { calls().exchange_capture_mode(&mode_); }
  ~RelaxedMode() { calls().exchange_capture_mode(&mode_); }
  RelaxedMode(const RelaxedMode&) = delete;
  RelaxedMode& operator=(const RelaxedMode&) = delete;

 private:
  int mode_ = 2;
};

void free_unused() {
  const RelaxedMode relaxed;
  const std::lock_guard lock(freed().mutex);
  std::erase_if(freed().ranges, [](const fake::Range& range) {
    if (in_use(range)) return false;
    calls().free(const_cast<void*>(range.data));
    return true;
  });
}

void free_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  count(block->stream.device_index(), [&](auto& stat) { stat.decrease(block->range.bytes); });
  if (block->generation != generation()) return;  // the memory is gone
  if (!block->used_elsewhere) {
    reuse(block->stream, block->range);
  }
  {
    const std::lock_guard lock(freed().mutex);
    freed().ranges.push_back(block->range);
  }
  free_unused();
}

// Memory of a graph, which lives as long as the graph or a tensor needs it.
void drop_owner(void* context) {
  delete static_cast<std::shared_ptr<c10::DataPtr>*>(context);
}

c10::DataPtr shared_with(Recording& graph, c10::DataPtr memory, std::size_t bytes) {
  auto shared = std::make_shared<c10::DataPtr>(std::move(memory));
  graph.own(shared, bytes);
  void* const data = shared->get();
  const auto device = shared->device();
  auto owner = std::make_unique<std::shared_ptr<c10::DataPtr>>(std::move(shared));
  return {data, owner.release(), &drop_owner, device};
}

struct DeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    int index = 0;
    check(calls().get_device(&index), "get the device");
    if (bytes == 0) return {nullptr, device(index)};
    require_working(index);
    free_unused();
    const RelaxedMode relaxed;
    void* memory = nullptr;
    const int code = calls().allocate(&memory, bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, code != cuda::kOutOfMemory,
                     "the fake GPU is out of memory: tried to allocate ", bytes, " bytes");
    check(code, "allocate memory");
    auto block =
        std::make_unique<Block>(Block{{memory, bytes}, current_stream(index), generation(), false});
    count(block->stream.device_index(), [&](auto& stat) { stat.increase(bytes); });
    c10::DataPtr owned(memory, block.release(), &free_block, device(index));
    const auto graph = recording_of(current_stream(index));
    return graph ? shared_with(*graph, std::move(owned), bytes) : std::move(owned);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    record_use(data, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    count(device, [&](const auto& stat) { stats.allocated_bytes[kAll] = stat; });
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    count(device, [](auto& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    count(device, [](auto& stat) { stat.reset_peak(); });
  }
};

// Begin and end of all pinned blocks.
struct Pinned {
  std::mutex mutex;
  std::map<const char*, const char*> blocks;
};

Pinned& pinned() {
  static Pinned all;
  return all;
}

void free_pinned(void* memory) {
  {
    const std::lock_guard lock(pinned().mutex);
    pinned().blocks.erase(static_cast<const char*>(memory));
  }
  std::free(memory);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    constexpr std::size_t kAlignment = 64;
    void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
    TORCH_CHECK(memory != nullptr, "out of memory");
    const std::lock_guard lock(pinned().mutex);
    const auto* begin = static_cast<const char*>(memory);
    pinned().blocks[begin] = begin + bytes;
    return {memory, memory, &free_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

DeviceAllocator memory_of_devices;
PinnedAllocator memory_of_host;
REGISTER_ALLOCATOR(kType, &memory_of_devices);

}  // namespace

c10::Allocator* device_allocator() {
  return &memory_of_devices;
}

c10::Allocator* pinned_allocator() {
  return &memory_of_host;
}

bool is_pinned(const void* data) {
  const std::lock_guard lock(pinned().mutex);
  const auto* at = static_cast<const char*>(data);
  const auto after = pinned().blocks.upper_bound(at);
  return after != pinned().blocks.begin() && at < std::prev(after)->second;
}

bool is_of_device(const void* data) {
  auto& machine = fake::Machine::get();
  const std::lock_guard lock(machine.mutex);
  return machine.find(reinterpret_cast<std::uintptr_t>(data), 1) != nullptr;
}

int device_of(const void* data) {
  auto& machine = fake::Machine::get();
  const std::lock_guard lock(machine.mutex);
  const auto* allocation = machine.find(reinterpret_cast<std::uintptr_t>(data), 1);
  TORCH_CHECK(allocation != nullptr, "this is not memory of the fake GPU");
  return allocation->device;
}

void record_use(const c10::DataPtr& data, const c10::Stream& stream) {
  if (data.get_deleter() != &free_block) return;
  auto& block = *static_cast<Block*>(data.get_context());
  if (stream != block.stream) block.used_elsewhere = true;
}

void release_memory(bool frees) {
  if (frees) free_unused();
  const std::lock_guard lock(freed().mutex);
  freed().ranges.clear();
}

}  // namespace ddp::fake_device
