// SPDX-License-Identifier: Apache-2.0
// Determines which parameters a loss depends on, from its graph, before backward runs.
#pragma once

#include <torch/torch.h>

#include <unordered_set>

namespace ddp {

// The nodes of the graph behind `loss`, including the gradient accumulators of all parameters that
// backward will reach. Linear in the size of the graph.
std::unordered_set<const torch::autograd::Node*> graph_of(const torch::Tensor& loss);

}  // namespace ddp
