// SPDX-License-Identifier: Apache-2.0
// Runs the kernels' bodies on the CPU, one thread of the grid after the other. The order must not
// matter, so the last thread of the last block comes first.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp_runtime/kernels/adamw.h"
#include "ddp_runtime/kernels/check.h"
#include "ddp_runtime/kernels/pack.h"

namespace ddp::kernels::cpu {

template <class Body>
void for_each_lane(std::uint64_t blocks, const Body& body) {
  for (std::uint64_t block = blocks; block-- > 0;) {
    for (std::uint32_t thread = kThreads; thread-- > 0;) body(Lane{block, blocks, thread});
  }
}

template <class From, class To>
void run_pack(const PackArguments& arguments, std::uint64_t blocks) {
  for_each_lane(blocks, [&](const Lane& lane) { pack<From, To>(arguments, lane); });
}

template <class Gradient>
void run_adamw(const AdamWArguments& arguments, std::uint64_t blocks) {
  for_each_lane(blocks, [&](const Lane& lane) { adamw<Gradient>(arguments, lane); });
}

inline double tree_sum(std::vector<double>& sums) {
  for (std::uint32_t half = kThreads / 2; half > 0; half /= 2) {
    for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
      tree_step(sums.data(), half, thread);
    }
  }
  return sums.front();
}

// What check.cu does around the bodies; keep them alike.
template <class Element>
void run_check(const CheckArguments& arguments, std::uint64_t blocks) {
  std::vector<double> sums(kThreads);
  for (std::uint64_t block = blocks; block-- > 0;) {
    for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
      sums[thread] = thread_sum<Element>(arguments, Lane{block, blocks, thread});
    }
    arguments.partials[block] = tree_sum(sums);
  }
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    sums[thread] = sum_of_partials(arguments.partials, blocks, thread);
  }
  write_result(arguments, tree_sum(sums));
}

}  // namespace ddp::kernels::cpu
