// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/used_parameters.h"

#include <vector>

namespace ddp {

std::unordered_set<const torch::autograd::Node*> graph_of(const torch::Tensor& loss) {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> to_visit;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) to_visit.push_back(node);
  };
  visit(loss.grad_fn().get());
  while (!to_visit.empty()) {
    const auto* node = to_visit.back();
    to_visit.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return seen;
}

}  // namespace ddp
