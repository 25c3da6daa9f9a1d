// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, each with a GPU of the fake whose memory goes through the host.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ddp_runtime/comm/device/staged_group.h"
#include "tests/unit/comm/device/gpu_ranks.h"

namespace ddp::comm::test {

// Copies of these GPUs take a while, and only page-locked memory may be copied.
inline constexpr int kSlowCopies = 3;

class StagedGroupTest : public GpuTest {
 protected:
  void SetUp() override { fake::reset({.pageable_copies = false, .polls_per_copy = kSlowCopies}); }
};

struct StagedSettings {
  std::size_t memory_bytes = 1 << 20;
  int ranks_per_gpu = 1;
  bool in_rank_order = false;
  std::function<void(int rank, NcclOptions&)> change = {};
};

inline std::vector<std::string> run_staged_ranks(int ranks,
                                                 const std::function<void(GpuRank)>& body,
                                                 const StagedSettings& settings = {}) {
  const auto open = [&](int rank, Group& host, FailureState& failures) {
    NcclOptions options = quick_options();
    options.nccl_library = "/does/not/exist.so";  // not needed
    options.device = rank / settings.ranks_per_gpu;
    if (settings.change) settings.change(rank, options);
    return std::make_unique<StagedGroup>(host, failures, options,
                                         StagingOptions{settings.memory_bytes});
  };
  GroupOptions host_options;
  host_options.in_rank_order = settings.in_rank_order;
  return run_ranks_on_gpus(ranks, open, body, host_options);
}

// The same, and no rank may fail.
inline void run_staged(int ranks, const std::function<void(GpuRank)>& body,
                       const StagedSettings& settings = {}) {
  EXPECT_EQ(run_staged_ranks(ranks, body, settings),
            std::vector<std::string>(static_cast<std::size_t>(ranks)));
}

// Numbers whose sums depend on the order of the additions.
inline std::vector<float> noise(std::size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> values(count);
  for (auto& v : values) v = value(random) * (random() % 2 == 0 ? 1.0F : 1e4F);
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace ddp::comm::test
