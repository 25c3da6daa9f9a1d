// SPDX-License-Identifier: Apache-2.0
// Loops of our own on libtorch's threads.
#pragma once

#include <cstdint>
#include <functional>

namespace ddp::optim {

// Divides [0, count) into ranges of whole multiples of `grain` elements, except at its end, and
// calls `body` with the first element of each range and the one after its last, on libtorch's
// threads (torch::get_num_threads(), OMP_NUM_THREADS) and this one. A count of at most `grain` is
// one range, on this thread. Returns when all calls have; throws what one of them has thrown.
//
// at::parallel_for() does the same only for files that are compiled with OpenMP, and does all on
// one thread, without a word, for others. To compile with OpenMP is no way out: the wheels bring a
// runtime of their own, and a process with two of them has two sets of threads for its cores.
void for_ranges(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t first, std::int64_t end)>& body);

}  // namespace ddp::optim
