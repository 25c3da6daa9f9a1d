// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/graph_knowledge.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"

namespace ddp {

GraphKnowledge::GraphKnowledge(std::size_t parameters, const DataParallelOptions& options)
    : parameters_(parameters),
      is_static_(options.static_graph),
      allows_unused_(options.allow_unused),
      rebuilds_(options.rebuild_buckets) {}

void GraphKnowledge::begin_pass() {
  gradients_left_ = gradients_of_;
  if (known_ == Known::nothing) ready_order_.clear();
}

bool GraphKnowledge::is_last_gradient(std::size_t index, const std::string& name) {
  if (!is_static_) {
    if (known_ == Known::nothing) ready_order_.push_back(index);
    return true;
  }
  if (gradients_of_.empty()) {  // still learning: everything is sent at the end
    if (gradients_left_.empty()) gradients_left_.resize(parameters_);
    ++gradients_left_[index];
    if (gradients_left_[index] == 1 && known_ == Known::nothing) ready_order_.push_back(index);
    return false;
  }
  if (gradients_left_[index] > 0) return --gradients_left_[index] == 0;
  throw RuntimeError(
      fmt::format("parameter '{}' got more gradients than in the first step; the graph is not "
                  "static, so static_graph must not be set",
                  name));
}

std::vector<std::size_t> GraphKnowledge::unreachable() const {
  std::vector<std::size_t> parameters;
  for (std::size_t i = 0; i < gradients_of_.size(); ++i) {
    if (gradients_of_[i] == 0) parameters.push_back(i);
  }
  return parameters;
}

// A static graph may lack gradients only until it is known.
bool GraphKnowledge::may_miss_gradients() const noexcept {
  return is_static_ ? gradients_of_.empty() : allows_unused_;
}

bool GraphKnowledge::tracks_use() const noexcept {
  return is_static_ ? used_by_any_.empty() : allows_unused_;
}

const std::vector<std::uint8_t>& GraphKnowledge::with_gradients(std::vector<std::uint8_t>& used) {
  if (is_static_) {
    if (used_by_any_.empty()) used_by_any_ = used;
    return used_by_any_;
  }
  if (!allows_unused_) std::ranges::fill(used, std::uint8_t{1});
  return used;
}

bool GraphKnowledge::take_new_order() noexcept {
  if (known_ != Known::new_order) return false;
  known_ = Known::all;
  return true;
}

void GraphKnowledge::end_pass(comm::Group& group) {
  // A rank that had no data in this pass has counted nothing and continues to learn.
  if (is_static_ && gradients_of_.empty()) gradients_of_ = gradients_left_;
  if (known_ != Known::nothing) return;
  if (!follows_order()) {
    known_ = Known::all;
  } else if (agree_on_order(group)) {
    known_ = Known::new_order;
  }
}

// All ranks adopt the order of one rank, because their own orders may differ but the buckets must
// not. It is the order of the first rank that has one: a rank without data has seen no gradients.
// Returns false if no rank had data.
bool GraphKnowledge::agree_on_order(comm::Group& group) {
  const int mine = ready_order_.empty() ? group.size() : group.rank();
  const int leader = -group.all_reduce_value<std::int32_t>(-mine, comm::ReduceOp::max);
  if (leader == group.size()) return false;
  auto order = gradient_order();
  order.resize(parameters_);
  group.broadcast(comm::buffer_of(std::span(order)), leader, "order of gradients").wait();
  ready_order_.assign(order.begin(), order.end());
  return true;
}

// If the set of used parameters changes from step to step, there is no single order.
bool GraphKnowledge::follows_order() const noexcept {
  return rebuilds_ && (is_static_ || !allows_unused_);
}

std::vector<std::int64_t> GraphKnowledge::gradient_order() const {
  if (!follows_order() || ready_order_.empty()) return {};
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  std::vector<bool> seen(parameters_);
  for (const std::size_t index : ready_order_) seen[index] = true;
  for (const std::size_t index : reverse_order(parameters_)) {
    if (!seen[index]) order.push_back(static_cast<std::int64_t>(index));
  }
  return order;
}

void GraphKnowledge::expect_gradient_order(std::span<const std::int64_t> order) {
  if (!follows_order() || order.size() != parameters_) return;
  std::vector<bool> seen(parameters_);
  for (const std::int64_t index : order) {
    if (index < 0 || index >= std::ssize(seen) || seen[static_cast<std::size_t>(index)]) return;
    seen[static_cast<std::size_t>(index)] = true;
  }
  ready_order_.assign(order.begin(), order.end());
  known_ = Known::new_order;
}

}  // namespace ddp
