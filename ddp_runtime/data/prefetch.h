// SPDX-License-Identifier: Apache-2.0
// Fetches numbered items ahead of their use, in background threads, and returns them in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "ddp_runtime/data/dataset.h"

namespace ddp::data {

class Prefetcher {
 public:
  // `fetch(i)` creates item i of `count`; it is called from at most `workers` threads, for at most
  // `depth` items ahead of the last one returned, so more threads than `depth` are not started.
  // Throws RuntimeError if no thread can be started.
  Prefetcher(std::int64_t count, std::function<Batch(std::int64_t)> fetch, int workers, int depth);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  // Drops items that were fetched and not used.
  ~Prefetcher();

  // Returns the next item, waiting for it if necessary. Rethrows an exception of fetch() for it.
  Batch next();

 private:
  struct Item {
    Batch batch;
    std::exception_ptr error;
  };

  void work();

  std::int64_t count_;
  std::function<Batch(std::int64_t)> fetch_;
  std::int64_t depth_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable ready_;
  std::map<std::int64_t, Item> items_;
  std::int64_t next_to_fetch_ = 0;
  std::int64_t next_to_use_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ddp::data
