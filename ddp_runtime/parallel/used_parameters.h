// Which parameters a loss depends on, found in its graph before backward runs.
#pragma once

#include <torch/torch.h>

#include <unordered_set>

namespace ddp {

// The nodes of the graph behind `loss`, among them the gradient accumulators of all parameters that
// backward will reach. Linear in the graph.
std::unordered_set<const torch::autograd::Node*> graph_of(const torch::Tensor& loss);

}  // namespace ddp
