// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/prefetch.h"

#include <algorithm>
#include <stdexcept>

namespace ddp::data {

Prefetcher::Prefetcher(std::int64_t count, std::function<Batch(std::int64_t)> fetch, int workers,
                       int depth)
    : count_(count), fetch_(std::move(fetch)), depth_(std::max(depth, 1)) {
  for (int i = 0; i < std::max(workers, 1); ++i) threads_.emplace_back([this] { work(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Prefetcher::work() {
  while (true) {
    std::int64_t number = 0;
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] {
        return stopping_ || next_to_fetch_ >= count_ || next_to_fetch_ < next_to_use_ + depth_;
      });
      if (stopping_ || next_to_fetch_ >= count_) return;
      number = next_to_fetch_++;
    }
    Item item;
    try {
      item.batch = fetch_(number);
    } catch (...) {
      item.error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      items_.emplace(number, std::move(item));
    }
    ready_.notify_one();
  }
}

Batch Prefetcher::next() {
  Item item;
  {
    std::unique_lock lock(mutex_);
    if (next_to_use_ >= count_) throw std::out_of_range("all items have been handed out");
    ready_.wait(lock, [this] { return items_.contains(next_to_use_); });
    item = std::move(items_.extract(next_to_use_).mapped());
    ++next_to_use_;
  }
  room_.notify_one();
  if (item.error) std::rethrow_exception(item.error);
  return std::move(item.batch);
}

}  // namespace ddp::data
