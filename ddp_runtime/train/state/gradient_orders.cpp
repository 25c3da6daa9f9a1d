// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/gradient_orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"

namespace ddp::train {
namespace {

std::string order_name(std::size_t replica) {
  return replica == 0 ? "ddp/gradient_order" : fmt::format("ddp/gradient_order-{}", replica);
}

}  // namespace

GradientOrders::GradientOrders(const std::vector<DistributedDataParallel*>& replicas)
    : replicas_(replicas), loaded_(std::max<std::size_t>(1, replicas.size())) {}

bool GradientOrders::divides_gradients(std::size_t replica) const {
  return replica < replicas_.size() &&
         dynamic_cast<const ShardedDataParallel*>(replicas_[replica]) != nullptr;
}

void GradientOrders::collect(std::vector<StateArray>& arrays) const {
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    auto order = i < replicas_.size() ? replicas_[i]->gradient_order() : loaded_[i];
    // Shards have no buckets, but a later run without shards may have them.
    if (order.empty() && divides_gradients(i)) order = loaded_[i];
    if (!order.empty()) arrays.push_back({order_name(i), torch::tensor(order, torch::kInt64)});
  }
}

void GradientOrders::add_targets(const ckpt::Checkpoint& checkpoint,
                                 std::vector<ReadTarget>& targets) {
  targets_.clear();
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    targets_.push_back(torch::empty({0}, torch::kInt64));
    const auto* const stored = checkpoint.find(order_name(i));
    if (stored == nullptr) continue;
    targets_.back() = torch::empty(shape_of(*stored), torch::kInt64);
    targets.push_back({{order_name(i), targets_.back()}, {}});
  }
}

void GradientOrders::take_loaded() {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const auto* const first = targets_[i].data_ptr<std::int64_t>();
    loaded_[i].assign(first, first + targets_[i].numel());
  }
  targets_.clear();
}

void GradientOrders::distribute(comm::Group& group) {
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    auto& order = loaded_[i];
    auto length = static_cast<std::int64_t>(order.size());
    group.broadcast(comm::buffer_of(length), 0, "length of the gradients' order").wait();
    order.resize(static_cast<std::size_t>(length));
    group.broadcast(comm::buffer_of(std::span(order)), 0, "order of gradients").wait();
    if (i < replicas_.size()) replicas_[i]->expect_gradient_order(order);
  }
}

}  // namespace ddp::train
