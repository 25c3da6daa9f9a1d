// SPDX-License-Identifier: Apache-2.0
// Retries operations whose failure a file server or a person may fix within seconds.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "hdf5_ckpt/error.h"

namespace ddp::ckpt {

// The unit of the delays between retries: 0.5, 1, 2, 4 and 8 times this, then an error.
struct RetryPolicy {
  std::chrono::milliseconds unit{1000};
};

// Retries `work`, with growing delays, while it throws UnreadableError; then rethrows the error
// with advice on what to do.
template <typename Work>
auto with_retries(const RetryPolicy& retry, const Work& work) {
  constexpr int kTries = 6;
  auto wait = retry.unit / 2;
  for (int tried = 1;; ++tried) {
    try {
      return work();
    } catch (const UnreadableError& error) {
      if (tried == kTries)
        throw UnreadableError(std::string(error.what()) +
                              "; it may be whole, so nothing was changed and no older one is used: "
                              "make it readable, or move it away, and start again");
    }
    std::this_thread::sleep_for(wait);
    wait *= 2;
  }
}

}  // namespace ddp::ckpt
