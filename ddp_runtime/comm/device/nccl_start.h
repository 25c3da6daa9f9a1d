// SPDX-License-Identifier: Apache-2.0
// Connects the GPUs of all ranks. Every rank learns why it failed, on whichever rank it did.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ddp_runtime/comm/device/communicator.h"
#include "ddp_runtime/comm/device/event_pool.h"
#include "ddp_runtime/comm/device/gpu_survey.h"
#include "ddp_runtime/comm/device/nccl_options.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/group/group.h"

namespace ddp::comm {

// The reason why these ranks cannot connect, in one sentence for all of them; nullopt if there is
// none. Pure.
std::optional<StartProblem> find_start_problem(std::span<const RankFacts> ranks);

struct StartedNccl {
  int device = 0;
  std::shared_ptr<EventPool> events;
  std::shared_ptr<void> stream;                // a DeviceStream of high priority, for all launches
  std::shared_ptr<void> word;                  // memory on the GPU for one number
  std::unique_ptr<Communicator> communicator;  // ends first: its kernels may use the memory
};

// Collective. Loads the libraries, compares the ranks, connects them, and proves with one small
// all-reduce that the GPUs reach each other. Throws on all ranks if it fails on one: UsageError if
// the user can change the cause, PeerFailure if another rank failed meanwhile, RuntimeError
// otherwise. `host` may not be used by another thread meanwhile.
StartedNccl start_nccl(Group& host, FailureState& failures, const NcclOptions& options);

// The same for a group of some of the ranks that start_nccl() has connected, on the same GPUs.
// Collective over `host`, the group of these ranks; all ranks of the job learn of an error.
StartedNccl start_nccl_of_part(Group& host, FailureState& failures, const NcclOptions& options,
                               const DeviceLibraries& libraries, int device);

}  // namespace ddp::comm
