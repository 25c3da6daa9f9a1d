// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/nvlink_domain.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"
#include "spank_plugin/fabric/choice/nccl_choice.h"

namespace ddp::fabric {
namespace {

constexpr const char* kChannels = "/dev/nvidia-caps-imex-channels";

const Gpu* find_gpu_of_domain(const Node& node) {
  constexpr std::array<std::string_view, 2> kModels{"GB200", "GB300"};
  const auto found = std::find_if(node.gpus.begin(), node.gpus.end(), [&](const Gpu& gpu) {
    return std::any_of(kModels.begin(), kModels.end(), [&gpu](std::string_view model) {
      return gpu.model.find(model) != std::string::npos;
    });
  });
  return found == node.gpus.end() ? nullptr : &*found;
}

}  // namespace

void check_nvlink_domain(const Node& node, PlanBuilder& builder) {
  const Gpu* gpu = find_gpu_of_domain(node);
  if (gpu == nullptr) return;
  // The user turned it off; user_overrides.cpp warns of that.
  for (const auto* const name : {"NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"}) {
    const std::string value = builder.value_of(name);
    if (!value.empty() && !is_on_for_nccl(value)) return;
  }
  if (node.can_use_imex) {
    builder.note("NVLink to other nodes is left alone: the task may open an IMEX channel");
    return;
  }
  const std::string model = quote_for_display(gpu->model);
  if (node.imex_channels.empty()) {
    builder.warn("no IMEX channel in " + std::string(kChannels) + ": without one NCCL cannot use " +
                 "NVLink between nodes, which GPUs of the model " + model +
                 " usually have; ask the administrator for channels (SLURM: "
                 "SwitchType=switch/nvidia_imex), mount the directory into the container, or set "
                 "NCCL_MNNVL_ENABLE=0 if NVLink ends at the node");
    return;
  }
  builder.warn("the task cannot open any of the " + std::to_string(node.imex_channels.size()) +
               " IMEX channels in " + kChannels + ": without one NCCL cannot use NVLink between " +
               "nodes, which GPUs of the model " + model +
               " usually have; ask the administrator for access to a channel");
}

}  // namespace ddp::fabric
