// SPDX-License-Identifier: Apache-2.0
// Starts a model from the weights of another one: from a checkpoint, a safetensors file or a file
// of torch.save. See docs/fine_tuning.md.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/train/model/init_plan.h"
#include "ddp_runtime/train/model/init_table.h"

namespace ddp::train {

// Fills the parameters and buffers of `module` on rank 0, and gives all ranks its values;
// floating-point values are converted to the type of the parameter. Collective, before or after the
// model is wrapped, between two steps. On rank 0, returns what was done; elsewhere an empty report.
//
// If anything is wrong, no tensor of the module has changed. Rank 0 throws UsageError if the file
// does not fit (see plan_initialization), and ckpt::Error if it cannot be read or is damaged; the
// other ranks throw the error that rank 0 reports.
InitReport initialize_from(comm::Group& group, torch::nn::Module& module,
                           const std::filesystem::path& source, const InitOptions& options = {});

// The same on one rank, for tensors that stand for the module's parameters and buffers: those under
// the names of `tensors`, which are the module's.
InitReport fill_from(const std::filesystem::path& source, const InitOptions& options,
                     const torch::nn::Module& module, const std::vector<NamedTensor>& tensors);

// Where a run starts, unless it resumes.
struct InitialWeights {
  std::filesystem::path source;
  InitOptions options = {};
};

// The settings "init_from", "init_map" and so on, for checkpoints and reports.
std::map<std::string, std::string> settings_of(const InitialWeights& weights);

}  // namespace ddp::train
