// SPDX-License-Identifier: Apache-2.0
// Counts what libtorch allocates on CPUs, on all threads, while it lives.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace ddp::test {

class CountingAllocator {
 public:
  CountingAllocator() : previous_(c10::GetCPUAllocator()), counting_(*previous_, counts_) {
    c10::SetCPUAllocator(&counting_);
  }
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;
  ~CountingAllocator() { c10::SetCPUAllocator(previous_); }

  std::size_t live_bytes() const {
    const std::lock_guard lock(counts_->mutex);
    return counts_->bytes;
  }
  std::size_t peak_bytes() const {
    const std::lock_guard lock(counts_->mutex);
    return counts_->peak;
  }
  void forget_peak() {
    const std::lock_guard lock(counts_->mutex);
    counts_->peak = counts_->bytes;
  }
  // The most allocations of this size that there were at a time.
  int most_of(std::size_t bytes) const {
    const std::lock_guard lock(counts_->mutex);
    const auto found = counts_->of_size.find(bytes);
    return found == counts_->of_size.end() ? 0 : found->second.most;
  }

 private:
  struct OfSize {
    int now = 0;
    int most = 0;
  };
  // Memory may be freed later than this object.
  struct Counts {
    std::mutex mutex;
    std::size_t bytes = 0;
    std::size_t peak = 0;
    std::map<std::size_t, OfSize> of_size;
  };
  struct Block {
    c10::DataPtr memory;
    std::size_t bytes;
    std::shared_ptr<Counts> counts;
  };

  static void free(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    const std::lock_guard lock(block->counts->mutex);
    block->counts->bytes -= block->bytes;
    --block->counts->of_size[block->bytes].now;
  }

  class Counting final : public c10::Allocator {
   public:
    Counting(c10::Allocator& inner, std::shared_ptr<Counts> counts)
        : inner_(inner), counts_(std::move(counts)) {}

#if TORCH_VERSION_MAJOR == 1
    c10::DataPtr allocate(std::size_t bytes) const override {
      return counted(bytes);
    }
#else
    c10::DataPtr allocate(std::size_t bytes) override {
      return counted(bytes);
    }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
      default_copy_data(to, from, bytes);
    }
#endif

   private:
    c10::DataPtr counted(std::size_t bytes) const {
      auto block = std::make_unique<Block>(Block{inner_.allocate(bytes), bytes, counts_});
      {
        const std::lock_guard lock(counts_->mutex);
        counts_->bytes += bytes;
        counts_->peak = std::max(counts_->peak, counts_->bytes);
        auto& of_size = counts_->of_size[bytes];
        of_size.most = std::max(of_size.most, ++of_size.now);
      }
      auto* const memory = block->memory.get();
      const auto device = block->memory.device();
      return {memory, block.release(), &free, device};
    }

    c10::Allocator& inner_;
    std::shared_ptr<Counts> counts_;
  };

  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  c10::Allocator* previous_;
  Counting counting_;
};

}  // namespace ddp::test
