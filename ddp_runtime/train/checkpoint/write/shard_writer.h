// SPDX-License-Identifier: Apache-2.0
// Writes this rank's share of a checkpoint in a background thread, from a copy of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/run_log.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/options/options.h"
#include "ddp_runtime/train/state/training_state.h"
#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/write/async_saver.h"

namespace ddp::train {

// The file that this rank writes, among how many.
struct ShardPlace {
  std::string file_name;
  std::size_t writers = 1;
};

class ShardWriter {
 public:
  using Write = std::function<void(const ShardPlace&, std::span<const ckpt::ArrayView>)>;

  // `ranks_on_host`: how many ranks share this machine's memory. All references must outlive this
  // object.
  ShardWriter(comm::Group& group, const TrainingState& state, const CheckpointOptions& options,
              std::uint64_t ranks_on_host, const RunLog& log);

  // Not collective; all ranks pass the same arrays, each with its rows. Calls `write` if this rank
  // writes a share of them: in the thread, with a copy, or before it returns if there is no memory
  // for one. Returns as soon as `arrays` may change.
  void start(const std::vector<StateArray>& arrays, Write write);
  // Calls `work` in the thread, or before it returns if none can be started.
  void start(std::function<void()> work);

  bool idle() const noexcept { return saver_.idle(); }
  void wait() { saver_.wait(); }

 private:
  comm::Group& group_;
  const TrainingState& state_;
  const CheckpointOptions& options_;
  const RunLog& log_;
  bool said_short_ = false;
  ckpt::AsyncSaver saver_;
};

}  // namespace ddp::train
