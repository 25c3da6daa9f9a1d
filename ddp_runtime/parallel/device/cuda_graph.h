// SPDX-License-Identifier: Apache-2.0
// Graphs of CUDA in a program that is linked with the CPU half of libtorch only; see cuda.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/device/device_graph.h"

namespace ddp {

// A MakeGraph for GPUs, after load_cuda(). Loads libslurm_ddp_cuda_graph.so, which is compiled if
// the build finds libtorch's CUDA half and CUDA's headers. Throws UsageError with one sentence if
// `device` is not a GPU, or if there is no such library in the loader's path or in lib beside bin.
std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device);

// A graph from the first of these files that can be loaded. Throws UsageError with one sentence if
// there is none, or if it is not a library of graphs.
std::unique_ptr<DeviceGraph> load_graph(const std::vector<std::string>& files, int device_index);

}  // namespace ddp
