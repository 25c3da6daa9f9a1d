// SPDX-License-Identifier: Apache-2.0
// The state of an optimizer on a local disk, for models whose state does not fit into memory.
//
//   ddp::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
//   optimizer.offload_state(std::make_unique<ddp::optim::StateFile>("/local/scratch"));
//
// Note [State in a file]
// The tensors of the state are mapped from the file, so checkpoints and programs that look at them
// find them where they always are. A step in one pass does not touch the mapping: it reads the
// state in windows of a few MiB, and writes each one back while the next one is computed (ZeRO
// with infinite memory: Rajbhandari et al., "ZeRO-Infinity", 2021). The same rules compute the same
// bits. What the kernel keeps of the file in memory is its page cache, which yields to others.
//
// Tensors with few values stay in ordinary memory. The state that libtorch's step makes, for
// parameters that the one pass does not fit, moves to the file after the step.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "ddp_runtime/optim/offload/scratch_file.h"
#include "ddp_runtime/optim/offload/windows.h"

namespace ddp::optim {

class StateFile {
 public:
  // Tensors with fewer values are not in the file.
  static constexpr std::int64_t kLeastValues = 16384;
  // Elements of the parameters that are updated together. With Adam, 8 MiB of state.
  static constexpr std::int64_t kWindow = 1 << 20;

  // Opens a file without a name in this directory, which is on a local disk. Throws UsageError if
  // there can be none.
  explicit StateFile(const std::filesystem::path& directory);

  // A tensor with zeros, with the type, sizes and order of `values`, which are on the CPU. Throws
  // RuntimeError if the disk is full.
  torch::Tensor zeros_like(const torch::Tensor& values) const;
  // The same tensor if the file has it or it has few values; otherwise a copy there.
  torch::Tensor moved(const torch::Tensor& tensor) const;
  bool holds(const void* place) const { return file_->holds(place); }
  // Of the state in the file.
  std::int64_t bytes() const { return file_->bytes(); }

  // See WindowStream::run. One thread at a time.
  void run_windows(std::span<Window> windows, const std::function<void(std::size_t)>& compute) {
    stream_.run(windows, compute);
  }
  void finish_windows() { stream_.finish(); }

 private:
  std::shared_ptr<ScratchFile> file_;  // tensors keep it
  WindowStream stream_;
};

}  // namespace ddp::optim
