// SPDX-License-Identifier: Apache-2.0
// What everything that saves checkpoints of one run has in common, and where these go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/run_log.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/options/options.h"
#include "ddp_runtime/train/ranks/rank_hosts.h"
#include "ddp_runtime/train/state/training_state.h"
#include "hdf5_ckpt/core/owner_tag.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/retention.h"

namespace ddp::train {

// Its references outlive all that has a copy of it.
struct SaveContext {
  comm::Group& group;
  const TrainingState& state;
  const CheckpointOptions& options;
  const nlohmann::json& run;  // describes the run, and is in every checkpoint
  const ckpt::OwnerTag& owner;
  const RankHosts& hosts;
  const RunLog& log;

  bool leads() const noexcept { return group.rank() == 0; }
  // Whether this is the lowest rank of its node.
  bool leads_node() const { return hosts.leads(rank()); }
  std::size_t rank() const noexcept { return static_cast<std::size_t>(group.rank()); }
};

// As SaveContext.
struct SaveTarget {
  ckpt::CheckpointDirectory& directory;
  ckpt::Retention& retention;  // nothing else uses it while a save is in progress
  // See RetentionPolicy. A background thread calls it.
  std::function<bool(std::uint64_t step)> in_use;
};

}  // namespace ddp::train
