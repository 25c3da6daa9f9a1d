// SPDX-License-Identifier: Apache-2.0
// Writes this rank's share of a checkpoint in a background thread, from a copy of it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/train/checkpoint/write/save_context.h"
#include "ddp_runtime/train/state/state_array.h"
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

  explicit ShardWriter(const SaveContext& context);

  // Not collective; all ranks pass the same arrays, each with its rows. Calls `write` if this rank
  // writes a share of them: in the thread, with a copy, or before it returns if there is no memory
  // for one. Returns as soon as `arrays` may change.
  void start(const std::vector<StateArray>& arrays, Write write);
  // Calls `work` in the thread, or before it returns if none can be started.
  void start(std::function<void()> work);

  bool idle() const noexcept { return saver_.idle(); }
  void wait() { saver_.wait(); }

 private:
  const SaveContext context_;
  bool said_short_ = false;
  ckpt::AsyncSaver saver_;
};

}  // namespace ddp::train
