// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/prefetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "base/errors.h"

namespace ddp::data {

Prefetcher::Prefetcher(std::int64_t count, std::function<Batch(std::int64_t)> fetch, int workers,
                       int depth)
    : count_(count), fetch_(std::move(fetch)), depth_(std::max(depth, 1)) {
  // More workers than items in flight would never have work.
  const std::int64_t useful = std::clamp<std::int64_t>(workers, 1, depth_);
  try {
    while (static_cast<std::int64_t>(threads_.size()) < useful) {
      threads_.emplace_back([this] { work(); });
    }
  } catch (const std::system_error& e) {
    // A smaller number of threads returns the same items.
    if (threads_.empty()) {
      throw RuntimeError(fmt::format(
          "cannot start a data loader thread: {}; raise the limit of processes (ulimit -u, or "
          "that of the job's cgroup)",
          e.code().message()));
    }
  }
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
