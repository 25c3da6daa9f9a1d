// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/blocks/block_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/group/cut.h"
#include "ddp_runtime/parallel/buckets/missing_gradients.h"
#include "ddp_runtime/parallel/buckets/tensor_buckets.h"
#include "ddp_runtime/parallel/device/step_marks.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

namespace ddp {
namespace {

// Enough for the network to be busy while this rank adds, without copies of all gradients.
constexpr std::size_t kExchangesAtOnce = 4;

void require_supported_by_blocks(const DataParallelOptions& options,
                                 const std::vector<NamedTensor>& sparse) {
  const char* const what = options.hook          ? "a communication hook"
                           : options.reduce_type ? "a reduce type"
                           : !sparse.empty()     ? "sparse gradients"
                                                 : nullptr;
  if (what == nullptr) return;
  throw UsageError(
      fmt::format("gradients that are added in an order of their own (ordered_blocks) do not go "
                  "together with {}; leave out one of them",
                  what));
}

std::vector<NamedTensor> with_real_gradients(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> chosen;
  for (const auto& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    if (parameter.tensor.is_complex()) {
      throw UsageError(
          fmt::format("parameter '{}' has complex numbers, whose gradients cannot be added in an "
                      "order of their own (ordered_blocks)",
                      parameter.name));
    }
    chosen.push_back(parameter);
  }
  return chosen;
}

// Until the work is done.
std::shared_ptr<const void> keep(const torch::Tensor& tensor) {
  return std::make_shared<torch::Tensor>(tensor);
}

}  // namespace

BlockExchange::BlockExchange(comm::Group& group, const std::vector<NamedTensor>& parameters,
                             const std::vector<NamedTensor>& sparse,
                             const DataParallelOptions& options)
    : group_(group),
      allow_unused_(options.allow_unused || options.static_graph),
      parameters_(with_real_gradients(parameters)),
      plan_(plan_buckets_of(parameters_, reverse_order(parameters_.size()), options.buckets)) {
  require_supported_by_blocks(options, sparse);
  for (const auto& members : plan_.buckets) {
    std::int64_t elements = 0;
    for (const std::size_t index : members) elements += parameters_[index].tensor.numel();
    elements_.push_back(elements);
  }
}

void BlockExchange::begin_step(int micro_batches) {
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  if (sums_) {
    for (auto& entry : sums_->entries()) unused_.push_back(std::move(entry.sum));
  }
  const SummationTree tree(static_cast<std::int64_t>(micro_batches) * group_.size());
  if (blocks_here_ != micro_batches) {
    blocks_here_ = micro_batches;
    nodes_.clear();
    for (std::int64_t rank = 0; rank < group_.size(); ++rank) {
      nodes_.push_back(nodes_of(tree, rank * blocks_here_, (rank + 1) * blocks_here_));
    }
  }
  sums_.emplace(tree);
  next_ = 0;
  used_.assign(parameters_.size(), 0);
  spans_.clear();
}

BlockExchange::Gradients BlockExchange::unused_memory() {
  if (!unused_.empty()) {
    auto memory = std::move(unused_.back());
    unused_.pop_back();
    return memory;
  }
  Gradients memory;
  for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    const auto& first = parameters_[plan_.buckets[bucket].front()].tensor;
    memory.push_back(torch::empty({elements_[bucket]}, first.options().requires_grad(false)));
  }
  return memory;
}

// See Note [Sums of blocks].
void BlockExchange::take_block() {
  const torch::NoGradGuard no_grad;
  auto block = unused_memory();
  for (std::size_t bucket = 0; bucket < block.size(); ++bucket) {
    std::int64_t offset = 0;
    for (const std::size_t index : plan_.buckets[bucket]) {
      const auto& parameter = parameters_[index].tensor;
      auto& gradient = parameter.mutable_grad();
      const auto place = gradient_window(block[bucket], offset, parameter);
      gradient.defined() ? place.copy_(gradient) : place.zero_();
      if (gradient.defined()) used_[index] = 1;
      gradient.reset();
      offset += parameter.numel();
    }
  }
  const auto add = [this](Gradients& left, Gradients&& right) {
    for (std::size_t bucket = 0; bucket < left.size(); ++bucket) left[bucket].add_(right[bucket]);
    unused_.push_back(std::move(right));
  };
  sums_->push({0, group_.rank() * blocks_here_ + next_}, std::move(block), add);
  ++next_;
}

void BlockExchange::pass_without_data(bool last) {
  take_block();
  // It adds nothing to any gradient, so it lacks none.
  if (last && !allow_unused_) used_.assign(parameters_.size(), 1);
}

// With one rank, too: a run must not depend on the number of ranks.
void BlockExchange::require_all_used() const {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (used_[i] == 0) missing.push_back(parameters_[i].name);
  }
  if (missing.empty()) return;
  throw RuntimeError(describe_missing(missing, parameters_.size(), /*static_graph=*/false));
}

void BlockExchange::find_used() {
  if (!allow_unused_) return require_all_used();
  const auto map = std::make_shared<std::vector<std::uint8_t>>(used_);
  group_
      .all_reduce(comm::buffer_of(std::span(*map)), comm::ReduceOp::max, "map of used parameters",
                  map)
      .wait();
  used_ = *map;
}

void BlockExchange::finish() {
  const torch::NoGradGuard no_grad;
  find_used();
  if (group_.size() > 1) add_up();
  publish(sums_->entries().front().sum);
}

// The collectives have the same order on all ranks. Afterwards, the first entry of sums_ has the
// result.
void BlockExchange::add_up() {
  const auto& result = sums_->entries().front().sum;
  std::deque<Exchange> exchanges;
  std::vector<comm::Work> gathers;
  std::size_t begun = 0;
  for (std::size_t bucket = 0; bucket < plan_.buckets.size(); ++bucket) {
    while (begun < plan_.buckets.size() && begun < bucket + kExchangesAtOnce) {
      exchanges.push_back(begin_exchange(begun++));
    }
    const auto exchange = std::move(exchanges.front());
    exchanges.pop_front();
    exchange.work.wait();
    note(bucket, "nodes", static_cast<std::size_t>(exchange.sent.nbytes()), exchange.work);
    add_received(bucket, exchange, result[bucket]);
    gathers.push_back(group_.all_gather(buffer_of(result[bucket]), comm::Cut{},
                                        label(bucket) + ", sums", keep(result[bucket])));
  }
  for (std::size_t bucket = 0; bucket < gathers.size(); ++bucket) {
    gathers[bucket].wait();
    note(bucket, "sums", static_cast<std::size_t>(result[bucket].nbytes()), gathers[bucket]);
  }
}

BlockExchange::Exchange BlockExchange::begin_exchange(std::size_t bucket) {
  const auto ranks = static_cast<std::size_t>(group_.size());
  const auto own = static_cast<std::size_t>(group_.rank());
  const auto starts = comm::even_starts(static_cast<std::size_t>(elements_[bucket]), group_.size());
  const auto& entries = sums_->entries();
  comm::PartSizes sizes;
  std::vector<torch::Tensor> parts;
  std::size_t received = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = static_cast<std::int64_t>(starts[rank]);
    const auto length = static_cast<std::int64_t>(starts[rank + 1]) - begin;
    for (const auto& entry : entries) parts.push_back(entry.sum[bucket].narrow(0, begin, length));
    sizes.input.push_back(entries.size() * static_cast<std::size_t>(length));
    sizes.output.push_back(nodes_[rank].size() * (starts[own + 1] - starts[own]));
    received += sizes.output.back();
  }
  Exchange exchange;
  exchange.sent = torch::cat(parts);
  exchange.received = torch::empty({static_cast<std::int64_t>(received)}, exchange.sent.options());
  exchange.work = group_.all_to_all(
      buffer_of(exchange.sent), buffer_of(exchange.received), std::move(sizes), label(bucket),
      std::make_shared<std::pair<torch::Tensor, torch::Tensor>>(exchange.sent, exchange.received));
  return exchange;
}

// Puts this rank's part of the sum over all blocks into `result`.
void BlockExchange::add_received(std::size_t bucket, const Exchange& exchange,
                                 const torch::Tensor& result) {
  const auto starts = comm::even_starts(static_cast<std::size_t>(elements_[bucket]), group_.size());
  const auto own = static_cast<std::size_t>(group_.rank());
  const auto begin = static_cast<std::int64_t>(starts[own]);
  const auto length = static_cast<std::int64_t>(starts[own + 1]) - begin;
  PartialSums<torch::Tensor> sums(SummationTree(blocks_here_ * group_.size()));
  std::int64_t offset = 0;
  for (const auto& nodes : nodes_) {
    for (const auto node : nodes) {
      sums.push(node, exchange.received.narrow(0, offset, length),
                [](torch::Tensor& left, torch::Tensor&& right) { left.add_(right); });
      offset += length;
    }
  }
  result.narrow(0, begin, length).copy_(sums.entries().front().sum);
}

void BlockExchange::note(std::size_t bucket, const char* what, std::size_t bytes,
                         const comm::Work& work) {
  auto name = fmt::format("{}, {}", label(bucket), what);
  if (marks_ != nullptr) return marks_->add(std::move(name), bytes, work);
  if (!work.done()) return;
  const auto times = work.times();
  spans_.push_back({std::move(name), bytes, {times.started, times.finished}});
}

void BlockExchange::publish(const Gradients& sums) {
  for (std::size_t bucket = 0; bucket < sums.size(); ++bucket) {
    std::int64_t offset = 0;
    for (const std::size_t index : plan_.buckets[bucket]) {
      const auto& parameter = parameters_[index].tensor;
      if (used_[index] != 0) {
        parameter.mutable_grad() = gradient_window(sums[bucket], offset, parameter);
      }
      offset += parameter.numel();
    }
  }
}

CapturableExchange& BlockExchange::capturable() {
  throw UsageError(
      "a step whose gradients are added in an order of their own (ordered_blocks) cannot be "
      "captured in a graph");
}

std::string BlockExchange::label(std::size_t bucket) const {
  return describe_bucket(plan_, parameters_, bucket);
}

}  // namespace ddp
