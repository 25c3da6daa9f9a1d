// SPDX-License-Identifier: Apache-2.0
// The GPU of each rank, which all ranks compare before they use their GPUs, so that every rank
// learns why one of them cannot start.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/comm/device/nccl_options.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/gpu/cuda_runtime.h"

namespace ddp::comm {

// What each rank tells the others before they start.
struct RankFacts {
  std::string error = {};       // why this rank cannot start; empty if it can
  bool is_usage_error = false;  // whether the user can change that
  int nccl_version = 0;         // 0 without NCCL
  std::string node = {};
  std::string gpu = {};      // its PCI address
  bool shares_gpus = false;  // NCCL_MULTI_RANK_GPU_ENABLE=1
};

struct StartProblem {
  std::string text = {};
  bool is_usage_error = true;
};

// The functions below are pure.

// The error of the first rank that has one, after `cannot` ("the NCCL backend cannot start") and
// the number of such ranks; nullopt if there is none.
std::optional<StartProblem> find_gpu_error(std::span<const RankFacts> ranks,
                                           std::string_view cannot);
// "ranks 0 and 2 on node1 both use the GPU 0000:01:00.0", for the first two ranks for which this is
// true although NCCL is not asked to allow it; nullopt if there are none.
std::optional<std::string> find_shared_gpu(std::span<const RankFacts> ranks);
// Why GPU memory cannot be sent by NCCL, for a program that leaves the choice to this library:
// ranks that share a GPU. nullopt if NCCL is to be tried, also if it cannot start, because its
// start reports the cause.
std::optional<std::string> reason_against_nccl(std::span<const RankFacts> ranks);

struct ThisGpu {
  RankFacts facts;
  cuda::Runtime calls;  // empty if facts.error is not
  int device = 0;       // its number among those that this process sees
};

// Collective. Chooses this rank's GPU and makes it this thread's current one. `load_more` loads
// what else this rank needs, and adds facts. Does not throw if there is no GPU; see facts.error.
ThisGpu find_this_gpu(Group& host, const NcclOptions& options,
                      const std::function<void(RankFacts&)>& load_more = {});
// Collective. The facts of all ranks, in rank order.
std::vector<RankFacts> exchange_facts(Group& host, const RankFacts& mine);
// Throws UsageError or RuntimeError if there is a problem.
void throw_if(const std::optional<StartProblem>& problem);

}  // namespace ddp::comm
