// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/tensors/tensor_collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/tensors/shape_comparison.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"
#include "ddp_runtime/parallel/tensors/tensor_memory.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {

class TensorWork::State {
 public:
  // Checked in this order, and before the data.
  std::optional<ShapeComparison> comparison = {};
  std::function<void()> check = {};
  comm::Work work = {};
  torch::Device device = torch::kCPU;
  std::optional<TensorMemory> result = {};
  bool is_over = false;
};

void TensorWork::wait() {
  if (!state_ || state_->is_over) return;
  if (state_->comparison) state_->comparison->finish();
  if (state_->check) state_->check();
  if (state_->device.is_cpu()) {
    state_->work.wait();
  } else {
    state_->work.wait_on(torch_compat::current_stream(state_->device));
  }
  if (state_->result) state_->result->write_back();
  state_->is_over = true;
  state_->result.reset();
}

bool TensorWork::done() const {
  return !state_ || state_->is_over || state_->work.done();
}

namespace {

std::string operation_text(const char* name, const CollectiveOptions& options) {
  return options.label.empty() ? name : fmt::format("{} ({})", name, options.label);
}

std::optional<ShapeComparison> begin_comparison(comm::Group& group, const std::string& what,
                                                std::string mine,
                                                const CollectiveOptions& options) {
  if (!options.compare_shapes || group.size() == 1) return std::nullopt;
  return ShapeComparison(group, what, std::move(mine));
}

// The comparison of a function that waits comes before its collective, which cannot fail because of
// different sizes then.
CollectiveOptions compare_now(comm::Group& group, const std::string& what, std::string mine,
                              CollectiveOptions options) {
  auto comparison = begin_comparison(group, what, std::move(mine), options);
  if (comparison) comparison->finish();
  options.compare_shapes = false;
  return options;
}

std::shared_ptr<const void> holder_of(std::vector<torch::Tensor> tensors) {
  return std::make_shared<const std::vector<torch::Tensor>>(std::move(tensors));
}

TensorWork work_of(TensorWork::State state) {
  return TensorWork(std::make_shared<TensorWork::State>(std::move(state)));
}

void require_one_kind(const torch::Tensor& output, const torch::Tensor& input,
                      const std::string& what) {
  const bool defined = output.defined() && input.defined();
  if (defined && output.scalar_type() == input.scalar_type() && output.device() == input.device()) {
    return;
  }
  throw UsageError(
      fmt::format("{}: input and output must be tensors of one type on one device", what));
}

// `whole` holds one part per rank.
void require_whole(const torch::Tensor& whole, const torch::Tensor& part, int ranks,
                   const std::string& what, const char* name_of_whole, const char* name_of_part) {
  if (whole.numel() == part.numel() * ranks) return;
  throw UsageError(fmt::format(
      "{}: the {} must have {} times the elements of the {}, one part per rank, but they have "
      "{} and {}",
      what, name_of_whole, ranks, name_of_part, whole.numel(), part.numel()));
}

void require_root_of(const comm::Group& group, int root, const std::string& what) {
  if (root >= 0 && root < group.size()) return;
  throw UsageError(
      fmt::format("{}: root {} is not a rank of the group of {}", what, root, group.size()));
}

void require_peer_of(const comm::Group& group, int peer, const std::string& what) {
  if (peer >= 0 && peer < group.size() && peer != group.rank()) return;
  throw UsageError(
      fmt::format("{}: {} is not another rank of the group of {}", what, peer, group.size()));
}

std::string text_of_reduction(const torch::Tensor& tensor, comm::ReduceOp op) {
  return fmt::format("{}, to be reduced by {}", describe_tensor(tensor), to_string(op));
}
std::string text_of_broadcast(const comm::Group& group, const torch::Tensor& tensor, int root) {
  return fmt::format("{}, from rank {}", describe_tensor(tensor), group.world_rank(root));
}

// Elements in a row, of dimension 0.
std::size_t row_length(const torch::Tensor& tensor) {
  return static_cast<std::size_t>(std::accumulate(tensor.sizes().begin() + 1, tensor.sizes().end(),
                                                  std::int64_t{1}, std::multiplies<>()));
}

// The sizes in bytes. Throws UsageError if the rows do not fit the tensor.
std::vector<std::size_t> part_bytes(const torch::Tensor& tensor,
                                    const std::vector<std::int64_t>& rows, int ranks,
                                    const std::string& what, const char* name) {
  const auto fits = [&] {
    if (rows.empty()) return tensor.size(0) % ranks == 0;
    bool all = static_cast<int>(rows.size()) == ranks;
    for (const auto part : rows) all &= part >= 0;
    return all && std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == tensor.size(0);
  };
  if (!fits()) {
    throw UsageError(fmt::format("{}: the {} rows of the {} cannot be divided among {} ranks {}",
                                 what, tensor.size(0), name, ranks,
                                 rows.empty() ? "equally; give the rows per rank"
                                              : fmt::format("as [{}]", fmt::join(rows, ", "))));
  }
  const std::size_t bytes = row_length(tensor) * tensor.element_size();
  std::vector<std::size_t> parts;
  for (const auto part : rows) parts.push_back(static_cast<std::size_t>(part) * bytes);
  if (rows.empty()) {
    parts.assign(static_cast<std::size_t>(ranks),
                 static_cast<std::size_t>(tensor.size(0) / ranks) * bytes);
  }
  return parts;
}

// What the others send, to be compared with what this rank expects.
std::function<void()> begin_comparison_of_parts(comm::Group& group, const std::string& what,
                                                const std::vector<std::size_t>& sent,
                                                const std::vector<std::size_t>& expected) {
  struct Sizes {
    std::vector<std::int64_t> out;
    std::vector<std::int64_t> in;
  };
  auto sizes = std::make_shared<Sizes>();
  sizes->out.assign(sent.begin(), sent.end());
  sizes->in.resize(sent.size());
  auto work =
      group.all_to_all(comm::buffer_of(std::span(sizes->out)),
                       comm::buffer_of(std::span(sizes->in)), {}, "sizes of " + what, sizes);
  return [&group, what, sizes, expected, work] {
    work.wait();
    for (std::size_t rank = 0; rank < expected.size(); ++rank) {
      const auto announced = static_cast<std::size_t>(sizes->in[rank]);
      if (announced == expected[rank]) continue;
      throw UsageError(fmt::format("{}: rank {} sends {} bytes to rank {}, which expects {}", what,
                                   group.world_rank(static_cast<int>(rank)), announced,
                                   group.world_rank(group.rank()), expected[rank]));
    }
  };
}

// All rows have one shape.
std::string text_of_rows(const torch::Tensor& tensor) {
  return "rows like those of " +
         describe_tensor(tensor.dim() == 0 ? tensor : tensor.narrow(0, 0, 0));
}

}  // namespace

// ---- all_reduce

TensorWork start_all_reduce(comm::Group& group, const torch::Tensor& tensor, comm::ReduceOp op,
                            const CollectiveOptions& options) {
  const std::string what = operation_text("all_reduce", options);
  auto memory = TensorMemory::to_reduce(tensor, what);
  const comm::Buffer data = memory.elements(op, what);
  auto comparison = begin_comparison(group, what, text_of_reduction(tensor, op), options);
  auto work = group.all_reduce(data, operation_for(tensor, op), options.label,
                               holder_of({memory.memory()}));
  return work_of({.comparison = std::move(comparison),
                  .work = std::move(work),
                  .device = tensor.device(),
                  .result = std::move(memory)});
}

void all_reduce(comm::Group& group, const torch::Tensor& tensor, comm::ReduceOp op,
                const CollectiveOptions& options) {
  const std::string what = operation_text("all_reduce", options);
  start_all_reduce(group, tensor, op,
                   compare_now(group, what, text_of_reduction(tensor, op), options))
      .wait();
}

// ---- broadcast

TensorWork start_broadcast(comm::Group& group, const torch::Tensor& tensor, int root,
                           const CollectiveOptions& options) {
  const std::string what = operation_text("broadcast", options);
  require_root_of(group, root, what);
  auto memory = group.rank() == root ? TensorMemory::to_read(tensor, what)
                                     : TensorMemory::to_write(tensor, what);
  auto comparison = begin_comparison(group, what, text_of_broadcast(group, tensor, root), options);
  auto work = group.broadcast(memory.bytes(), root, options.label, holder_of({memory.memory()}));
  return work_of({.comparison = std::move(comparison),
                  .work = std::move(work),
                  .device = tensor.device(),
                  .result = std::move(memory)});
}

void broadcast(comm::Group& group, const torch::Tensor& tensor, int root,
               const CollectiveOptions& options) {
  const std::string what = operation_text("broadcast", options);
  require_root_of(group, root, what);
  start_broadcast(group, tensor, root,
                  compare_now(group, what, text_of_broadcast(group, tensor, root), options))
      .wait();
}

// ---- all_gather

TensorWork start_all_gather(comm::Group& group, const torch::Tensor& output,
                            const torch::Tensor& input, const CollectiveOptions& options) {
  const std::string what = operation_text("all_gather", options);
  require_one_kind(output, input, what);
  require_whole(output, input, group.size(), what, "output", "input");
  const auto from = TensorMemory::to_read(input, what);
  auto to = TensorMemory::to_write(output, what);
  auto comparison = begin_comparison(group, what, describe_tensor(input), options);
  auto work = group.all_gather(from.bytes(), to.bytes(), options.label,
                               holder_of({from.memory(), to.memory()}));
  return work_of({.comparison = std::move(comparison),
                  .work = std::move(work),
                  .device = output.device(),
                  .result = std::move(to)});
}

void all_gather(comm::Group& group, const torch::Tensor& output, const torch::Tensor& input,
                const CollectiveOptions& options) {
  const std::string what = operation_text("all_gather", options);
  start_all_gather(group, output, input, compare_now(group, what, describe_tensor(input), options))
      .wait();
}

std::vector<torch::Tensor> all_gather(comm::Group& group, const torch::Tensor& input,
                                      const CollectiveOptions& options) {
  if (!input.defined()) {
    throw UsageError(fmt::format("{}: there is no tensor", operation_text("all_gather", options)));
  }
  std::vector<std::int64_t> shape{group.size()};
  shape.insert(shape.end(), input.sizes().begin(), input.sizes().end());
  const auto all = torch::empty(shape, input.options().requires_grad(false));
  all_gather(group, all, input, options);
  return all.unbind();
}

// ---- reduce_scatter

TensorWork start_reduce_scatter(comm::Group& group, const torch::Tensor& output,
                                const torch::Tensor& input, comm::ReduceOp op,
                                const CollectiveOptions& options) {
  const std::string what = operation_text("reduce_scatter", options);
  require_one_kind(output, input, what);
  require_whole(input, output, group.size(), what, "input", "output");
  const auto from = TensorMemory::to_reduce_copy(input, what);
  auto to = TensorMemory::to_write_reduced(output, what);
  const comm::Buffer parts = from.elements(op, what);
  auto comparison = begin_comparison(group, what, text_of_reduction(input, op), options);
  auto work = group.reduce_scatter(parts, to.elements(op, what), operation_for(input, op),
                                   options.label, holder_of({from.memory(), to.memory()}));
  return work_of({.comparison = std::move(comparison),
                  .work = std::move(work),
                  .device = output.device(),
                  .result = std::move(to)});
}

void reduce_scatter(comm::Group& group, const torch::Tensor& output, const torch::Tensor& input,
                    comm::ReduceOp op, const CollectiveOptions& options) {
  const std::string what = operation_text("reduce_scatter", options);
  start_reduce_scatter(group, output, input, op,
                       compare_now(group, what, text_of_reduction(input, op), options))
      .wait();
}

// ---- all_to_all

TensorWork start_all_to_all(comm::Group& group, const torch::Tensor& output,
                            const torch::Tensor& input, const RowsPerRank& rows,
                            const CollectiveOptions& options) {
  const std::string what = operation_text("all_to_all", options);
  require_one_kind(output, input, what);
  if (input.dim() == 0 || output.dim() == 0) {
    throw UsageError(
        fmt::format("{}: input and output must have rows, but have no dimension", what));
  }
  comm::PartSizes sizes{part_bytes(input, rows.input, group.size(), what, "input"),
                        part_bytes(output, rows.output, group.size(), what, "output")};
  const auto me = static_cast<std::size_t>(group.rank());
  if (sizes.input[me] != sizes.output[me]) {
    throw UsageError(fmt::format("{}: rank {} sends {} bytes to itself, and expects {}", what,
                                 group.world_rank(group.rank()), sizes.input[me],
                                 sizes.output[me]));
  }
  const auto from = TensorMemory::to_read(input, what);
  auto to = TensorMemory::to_write(output, what);
  auto comparison = begin_comparison(group, what, text_of_rows(input), options);
  std::function<void()> check;
  if (comparison) check = begin_comparison_of_parts(group, what, sizes.input, sizes.output);
  auto work = group.all_to_all(from.bytes(), to.bytes(), std::move(sizes), options.label,
                               holder_of({from.memory(), to.memory()}));
  return work_of({.comparison = std::move(comparison),
                  .check = std::move(check),
                  .work = std::move(work),
                  .device = output.device(),
                  .result = std::move(to)});
}

void all_to_all(comm::Group& group, const torch::Tensor& output, const torch::Tensor& input,
                const RowsPerRank& rows, const CollectiveOptions& options) {
  const std::string what = operation_text("all_to_all", options);
  require_one_kind(output, input, what);
  if (options.compare_shapes && group.size() > 1 && input.dim() > 0 && output.dim() > 0) {
    const auto sent = part_bytes(input, rows.input, group.size(), what, "input");
    const auto expected = part_bytes(output, rows.output, group.size(), what, "output");
    ShapeComparison(group, what, text_of_rows(input)).finish();
    begin_comparison_of_parts(group, what, sent, expected)();
  }
  CollectiveOptions compared = options;
  compared.compare_shapes = false;
  start_all_to_all(group, output, input, rows, compared).wait();
}

// ---- messages

TensorWork start_send(comm::Group& group, const torch::Tensor& tensor, int peer,
                      const CollectiveOptions& options) {
  const std::string what = operation_text("send", options);
  require_peer_of(group, peer, what);
  const auto memory = TensorMemory::to_read(tensor, what);
  auto work = group.send(memory.bytes(), peer, options.label, holder_of({memory.memory()}));
  return work_of({.work = std::move(work), .device = tensor.device()});
}

void send(comm::Group& group, const torch::Tensor& tensor, int peer,
          const CollectiveOptions& options) {
  start_send(group, tensor, peer, options).wait();
}

TensorWork start_receive(comm::Group& group, const torch::Tensor& tensor, int peer,
                         const CollectiveOptions& options) {
  const std::string what = operation_text("receive", options);
  require_peer_of(group, peer, what);
  auto memory = TensorMemory::to_write(tensor, what);
  auto work = group.receive(memory.bytes(), peer, options.label, holder_of({memory.memory()}));
  return work_of({.work = std::move(work), .device = tensor.device(), .result = std::move(memory)});
}

void receive(comm::Group& group, const torch::Tensor& tensor, int peer,
             const CollectiveOptions& options) {
  start_receive(group, tensor, peer, options).wait();
}

}  // namespace ddp
