// SPDX-License-Identifier: Apache-2.0
// The GPUs of the node that a task sees. Most programs use LOCAL_RANK as the index of their GPU,
// which is wrong if SLURM shows each task only its own GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

struct GpuView {
  std::optional<std::uint32_t> visible;  // number of GPUs that this task sees; nullopt if unknown
  std::uint32_t on_node = 0;             // number of GPUs of the step on this node; 0 if unknown
  bool is_masked = false;                // this task sees fewer GPUs than the step has on this node
  std::uint32_t slices = 0;              // MIG devices in the list; CUDA shows only the first
  std::string source;                    // variable

  // Returns the index of the visible GPU for the task with this local rank; nullopt without GPUs.
  std::optional<std::uint32_t> device_of(std::uint32_t local_rank) const noexcept;
};

// Returns the number of devices that a process sees with a list such as "0,1" or
// "GPU-8f3a...,GPU-...". "" and "-1" select none, and an invalid entry hides itself and all after
// it. CUDA shows a process only the first MIG device (a slice of a GPU) of a list.
std::uint32_t count_devices(std::string_view devices);

GpuView view_gpus(const TaskFacts& task, const NodeFacts& node);

// True if the task sees more GPUs than one rank uses, so that it may start ranks of its own (as
// torchrun does), which inherit its variables and compute on the others.
bool may_start_ranks(const GpuView& view, const TaskFacts& task) noexcept;

// Returns the lists that show a masked task all GPUs of the step on its node, without those that
// the task already has. Empty unless the policy is `shared` and the device files are accessible;
// also empty if nothing is masked, if masking is unknown, and for MIG devices, because all tasks
// would get the first one.
std::vector<GpuList> unmasked_lists(const TaskFacts& task, const NodeFacts& node, GpuPolicy policy);

// Returns the GPU that the task will compute on, as an identifier that is valid on the whole node:
// its number in PCI order, "GPU-8f3a..." or "MIG-...". Returns nullopt if the GPU is not certain.
std::optional<std::string> own_gpu(const TaskFacts& task, const NodeFacts& node, GpuPolicy policy);

// Returns warnings about legal settings that are often mistakes, with the remedies.
std::vector<std::string> gpu_notes(const GpuView& view, const TaskFacts& task, GpuPolicy policy);

}  // namespace ddp::launch
