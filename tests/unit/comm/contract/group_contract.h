// SPDX-License-Identifier: Apache-2.0
// What every Group must do, however it communicates. Each case of the contract runs on groups of
// hosts, on groups of NCCL, and on groups of GPUs whose memory goes through the host. What is true
// of one of them only is tested elsewhere.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/device/staged_group.h"
#include "tests/unit/comm/device/gpu_ranks.h"

namespace ddp::comm::test {

enum class Way { hosts, nccl, staged };

// A kind of group.
struct Kind {
  const char* name;
  Way way;
  fake::Knobs knobs = {};
  GroupOptions hosts = {};
  int nodes = 1;  // on which the ranks are in turns
  std::size_t staging_bytes = 1 << 20;
  int ranks_per_gpu = 1;

  int max_ranks() const { return way == Way::hosts ? 7 : knobs.devices * ranks_per_gpu; }
};

inline void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

inline std::vector<Kind> kinds_of(Way way) {
  using namespace std::chrono_literals;
  GroupOptions in_rank_order;
  in_rank_order.in_rank_order = true;
  if (way == Way::hosts) {
    const GroupOptions small_segments{.limits = {.segment_bytes = 256, .window = 3}};
    return {{.name = "Hosts", .way = way},
            {.name = "HostsOnThreeNodes", .way = way, .hosts = small_segments, .nodes = 3},
            {.name = "HostsInRankOrder", .way = way, .hosts = in_rank_order}};
  }
  if (way == Way::nccl) {
    // The launch is far behind the call, so an event that is recorded too early misses it.
    return {{.name = "Nccl", .way = way},
            {.name = "NcclWithLateLaunches", .way = way, .knobs = {.polls_in_progress = 50}}};
  }
  // Copies take a while, and only page-locked memory may be copied.
  const fake::Knobs slow{.pageable_copies = false, .polls_per_copy = 3};
  return {{.name = "Staged", .way = way, .knobs = slow},
          {.name = "StagedInPieces", .way = way, .knobs = slow, .staging_bytes = 4096},
          {.name = "StagedInRankOrder", .way = way, .knobs = slow, .hosts = in_rank_order},
          {.name = "StagedOnSharedGpus", .way = way, .knobs = slow, .ranks_per_gpu = 2}};
}

inline std::vector<Kind> kinds_of(const std::vector<Way>& ways) {
  std::vector<Kind> kinds;
  for (const Way way : ways) {
    for (auto& kind : kinds_of(way)) kinds.push_back(std::move(kind));
  }
  return kinds;
}

inline const auto kAllKinds = kinds_of({Way::hosts, Way::nccl, Way::staged});
inline const auto kGpuKinds = kinds_of({Way::nccl, Way::staged});

inline std::string name_of_kind(const testing::TestParamInfo<Kind>& info) {
  return info.param.name;
}

class GroupContract : public GpuTest, public testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override { fake::reset(kind.knobs); }

  // Runs the body on each rank, none of which may fail.
  void run(int ranks, const std::function<void(GpuRank)>& body) const {
    EXPECT_THAT(errors_of(ranks, body), testing::Each("")) << ranks << " ranks";
  }
  // Runs the body on different numbers of ranks.
  void run_all_sizes(const std::function<void(GpuRank)>& body) const {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      if (ranks <= kind.max_ranks()) run(ranks, body);
    }
  }
  // Each rank's error; the first one ends all ranks.
  std::vector<std::string> errors_of(int ranks, const std::function<void(GpuRank)>& body) const {
    const auto open = [&](int rank, Group& host, FailureState& failures) {
      return open_group(rank, host, failures);
    };
    return run_ranks_on_gpus(ranks, open, body, kind.way == Way::nccl ? GroupOptions() : kind.hosts,
                             [&](int rank) { return rank % kind.nodes; });
  }
  std::unique_ptr<Group> open_group(int rank, Group& host, FailureState& failures) const {
    NcclOptions options = quick_options();
    options.device = rank / kind.ranks_per_gpu;
    options.limits = kind.hosts.limits;
    if (kind.way == Way::staged) {
      return std::make_unique<StagedGroup>(host, failures, options,
                                           StagingOptions{kind.staging_bytes});
    }
    if (kind.way == Way::hosts) return nullptr;
    device_calls().set_device(rank);
    return std::make_unique<NcclGroup>(host, failures, options);
  }

  Kind kind = GetParam();
};

// Groups whose parts may communicate at the same time as the whole.
class SplitContract : public GroupContract {
 protected:
  void SetUp() override {
    kind.knobs.collectives_at_once = 3;
    GroupContract::SetUp();
  }
};

}  // namespace ddp::comm::test
