// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/model/state_offload.h"

#include <memory>
#include <string>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/train/checkpoint/directory/run_directory.h"
#include "ddp_runtime/train/ranks/rank_agreement.h"

namespace ddp::train {

bool offloads(const TrainOptions& options) {
  return options.offload_to_host || !options.offload_directory.empty();
}

void require_offloadable(const TrainOptions& options, torch::Device device) {
  if (device.is_cpu() && options.offload_to_host) {
    throw UsageError(
        "offload_to_host is for GPUs: on CPUs the optimizer's state is in that memory already; use "
        "offload_directory, on a local disk");
  }
  if (!device.is_cpu() && !options.offload_directory.empty()) {
    throw UsageError(
        "offload_directory is for CPUs: on GPUs, use offload_to_host, which keeps the optimizer's "
        "state in the memory of the host");
  }
}

void offload_state(comm::Group& group, optim::KeepsMasters* keeper, const TrainOptions& options) {
  if (options.offload_to_host) {
    keeper->offload_state(std::make_unique<optim::HostState>());
    return;
  }
  std::unique_ptr<optim::StateFile> file;
  std::string mine;
  try {
    file = std::make_unique<optim::StateFile>(options.offload_directory);
  } catch (const UsageError& error) {
    mine = error.what();
  }
  const auto problem = first_problem(group, mine, this_owner().host);
  if (!problem.empty()) throw UsageError(problem);
  keeper->offload_state(std::move(file));
}

}  // namespace ddp::train
