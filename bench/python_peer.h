// SPDX-License-Identifier: Apache-2.0
// PyTorch's own DistributedDataParallel, ZeroRedundancyOptimizer or FSDP2 over Gloo, on GPUs over
// NCCL, in one Python process per rank, for comparison.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/child_process.h"
#include "bench/training_loop.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/models/model.h"

namespace ddp::bench {

struct PythonPeerOptions {
  std::string interpreter = "/usr/bin/python3";  // with python3-torch
  // Keyword arguments for torch.nn.parallel.DistributedDataParallel, as a JSON object.
  std::string ddp_arguments = "{}";
  std::string optimizer = "sgd";  // see TrainingLoop
  // eager: PyTorch's defaults; fused: its fused optimizer; graph: that, and the whole step as a
  // CUDA graph; compile: the fused optimizer, and the model by torch.compile().
  std::string step = "eager";
  // What the ranks divide among themselves: the "optimizer", with ZeroRedundancyOptimizer; the
  // "parameters", with FSDP2; or the "gradients", with FSDP2 that keeps the parameters whole from
  // forward to backward. Empty: DistributedDataParallel alone.
  std::string shard = {};
  // Cuts the model into stages instead, with torch.distributed.pipelining.
  struct Pipeline {
    std::string schedule = {};  // as in pipeline::parse_schedule(); empty: no pipeline
    int micro_batches = 1;
    int stages_per_rank = 1;
  };
  Pipeline pipeline = {};
};

// Of the result, such as python_fsdp2_gloo.
std::string python_peer_name(const std::string& shard, const torch::Device& device);

class PythonPeer {
 public:
  explicit PythonPeer(std::unique_ptr<ChildProcess> child) : child_(std::move(child)) {}

  // Trains this many steps together with the other ranks' peers and returns the seconds of each
  // step. The process sleeps between calls. Throws RuntimeError with the peer's message if it
  // fails.
  std::vector<double> run(std::int64_t steps);

 private:
  std::unique_ptr<ChildProcess> child_;
};

struct StartedPythonPeer {
  std::unique_ptr<PythonPeer> peer;  // non-null on all ranks or on none
  std::string missing;               // why there is no peer
  std::string version;               // PyTorch version
  std::int64_t parameters = 0;       // number of parameters of Python's model
};

// Collective. Starts a process on each rank with the same model, batch and number of compute
// threads. The process exits when the peer is destroyed or this process exits. If PyTorch with Gloo
// (on GPUs, with NCCL) is missing on the node of any rank, or cannot run or divide that step, there
// is no peer. Throws UsageError if the arguments are not a JSON object.
StartedPythonPeer start_python_peer(comm::Group& group, const models::ModelOptions& model,
                                    std::int64_t batch, const PythonPeerOptions& options,
                                    const Computation& how);

}  // namespace ddp::bench
