// SPDX-License-Identifier: Apache-2.0
// Which of its node's GPUs a task sees, and what that means for LOCAL_RANK: most programs use it as
// the index of their GPU, which is wrong where SLURM shows each task only its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/launch/facts.h"
#include "spank_plugin/launch/settings.h"

namespace ddp::launch {

struct GpuView {
  std::optional<std::uint32_t> visible;  // number of GPUs that this task sees; nullopt if unknown
  std::uint32_t on_node = 0;             // number of GPUs of the step on this node; 0 if unknown
  bool is_masked = false;                // this task sees fewer than the step has here
  std::uint32_t slices = 0;              // MIG devices in the list, of which CUDA shows the first
  std::string source;                    // variable

  // The index of the visible GPU for the task with this local rank; nullopt without GPUs.
  std::optional<std::uint32_t> device_of(std::uint32_t local_rank) const noexcept;
};

// How many devices of a list such as "0,1" or "GPU-8f3a...,GPU-..." a process sees. "" and "-1"
// select none. Of MIG devices, the slices of a GPU, CUDA shows a process only the first.
std::uint32_t count_devices(std::string_view devices) noexcept;

GpuView view_gpus(const TaskFacts& task, const NodeFacts& node);

// The lists that show a masked task all GPUs of the step on its node; only those that differ from
// what the task has. Empty unless the policy is `shared` and the device files are accessible; also
// empty if nothing is masked, if masking is unknown, and for MIG devices, because all tasks would
// get the first one.
std::vector<GpuList> unmasked_lists(const TaskFacts& task, const NodeFacts& node, GpuPolicy policy);

// The GPU that the task will compute on, by an identifier that is valid on the whole node: its
// number in PCI order, "GPU-8f3a..." or "MIG-...". Returns nullopt if that is not known for sure.
std::optional<std::string> own_gpu(const TaskFacts& task, const NodeFacts& node, GpuPolicy policy);

// Warnings about what is legal but often a mistake, with the remedy.
std::vector<std::string> gpu_notes(const GpuView& view, const TaskFacts& task, GpuPolicy policy);

}  // namespace ddp::launch
