// SPDX-License-Identifier: Apache-2.0
// The threads take indices from a shared counter, which the first exception stops.

#include "hdf5_ckpt/io/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace ddp::ckpt {
namespace {

class FirstException {
 public:
  void keep(std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = std::move(exception);
    raised_ = true;
  }
  bool raised() const { return raised_; }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
  std::atomic<bool> raised_ = false;
};

}  // namespace

void parallel_for(std::size_t count, unsigned threads,
                  const std::function<void(std::size_t, unsigned)>& work) {
  std::atomic<std::size_t> next = 0;
  FirstException failure;
  const auto run = [&](unsigned worker) {
    while (!failure.raised()) {
      const std::size_t index = next.fetch_add(1);
      if (index >= count) return;
      try {
        work(index, worker);
      } catch (...) {
        failure.keep(std::current_exception());
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::size_t useful = std::min<std::size_t>(threads, count);
    try {
      for (unsigned worker = 1; worker < useful; ++worker) helpers.emplace_back(run, worker);
    } catch (const std::system_error&) {
      // No more threads are available, so the existing ones, at least this one, do the work.
    }
    run(0);
  }
  failure.rethrow();
}

}  // namespace ddp::ckpt
