// SPDX-License-Identifier: Apache-2.0
// Retries operations whose failure a file server or a person may fix within seconds.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {

// Retries `work`, after 0.5, 1, 2, 4 and 8 times `unit`, while it throws UnreadableError; then
// rethrows the error with advice on what to do.
template <typename Work>
auto with_retries(std::chrono::milliseconds unit, const Work& work) {
  constexpr int kTries = 6;
  auto wait = unit / 2;
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
