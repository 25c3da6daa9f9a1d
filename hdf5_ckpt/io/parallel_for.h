// SPDX-License-Identifier: Apache-2.0
// Runs independent pieces of work on a few threads.
#pragma once

#include <cstddef>
#include <functional>

namespace ddp::ckpt {

// Calls work(index, worker) once for each index below `count`, on at most `threads` threads
// including the calling one (0 counts as 1); worker < threads identifies the thread, so that each
// can own a buffer. With one thread the order is 0, 1, 2, ... After the first exception no further
// call starts, and that exception is rethrown when all threads have finished.
void parallel_for(std::size_t count, unsigned threads,
                  const std::function<void(std::size_t index, unsigned worker)>& work);

}  // namespace ddp::ckpt
