// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

namespace ddp {
namespace {

// A tensor whose rows are not contiguous, such as a transposed one, is one row.
ArraySize size_of(const torch::Tensor& parameter) {
  const std::int64_t elements = parameter.numel();
  if (elements == 0) return {0, 1};
  if (parameter.dim() > 0 && parameter.stride(0) == elements / parameter.size(0)) {
    return {parameter.size(0), parameter.stride(0)};
  }
  return {1, elements};
}

std::vector<ArraySize> sizes_of(const std::vector<torch::Tensor>& arrays) {
  std::vector<ArraySize> sizes;
  sizes.reserve(arrays.size());
  for (const auto& array : arrays) sizes.push_back(size_of(array));
  return sizes;
}

// The deleter by which unit_calls_of() knows a storage of a FlatShard. The memory has another
// owner.
void delete_nothing(void* /*calls*/) {}

c10::DataPtr marked(void* memory, void* calls, torch::Device device) {
  return {memory, calls, &delete_nothing, device};
}

}  // namespace

void require_dense(const torch::Tensor& parameter, const std::string& name) {
  if (parameter.layout() == torch::kStrided && parameter.is_non_overlapping_and_dense() &&
      can_be_communicated(parameter.scalar_type())) {
    return;
  }
  throw UsageError(fmt::format(
      "{}, of shape [{}], cannot be divided among the ranks: it must be a dense tensor of real "
      "numbers without gaps",
      name, fmt::join(parameter.sizes(), ", ")));
}

UnitCalls* unit_calls_of(const torch::Tensor& parameter) {
  if (!parameter.has_storage()) return nullptr;
  const auto& memory = parameter.storage().data_ptr();
  return memory.get_deleter() == &delete_nothing ? static_cast<UnitCalls*>(memory.get_context())
                                                 : nullptr;
}

FlatShard::FlatShard(comm::Group& group, std::vector<torch::Tensor> arrays, Kept kept,
                     UnitCalls* calls)
    : group_(group),
      arrays_(std::move(arrays)),
      sizes_(sizes_of(arrays_)),
      plan_(plan_shards(sizes_, group.size(),
                        arrays_.front().is_cpu() ? ShardSizes::close : ShardSizes::equal)),
      flat_(plan_.flats.front()),
      // With a single rank, its part is all there is.
      kept_(group.size() == 1 ? Kept::whole : kept) {
  const auto rank = static_cast<std::size_t>(group.rank());
  for (std::size_t r = 0; r + 1 < flat_.starts.size(); ++r) {
    part_sizes_.push_back(static_cast<std::size_t>(flat_.starts[r + 1] - flat_.starts[r]));
  }
  first_ = flat_.starts[rank];
  const torch::NoGradGuard no_grad;
  move_to_memory(calls);
  note_versions();
}

void FlatShard::allocate(const torch::TensorOptions& options) {
  const auto bytes_of = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * options.dtype().itemsize();
  };
  if (kept_ == Kept::part) {
    const auto largest = *std::ranges::max_element(part_sizes_);
    memory_ = group_.allocate(bytes_of(static_cast<std::int64_t>(largest)));
    const auto mine = part_sizes_[static_cast<std::size_t>(group_.rank())];
    mine_ = tensor_on(memory_, static_cast<std::int64_t>(mine), options);
    return;
  }
  const auto bytes = bytes_of(flat_.elements);
  memory_ = kept_ == Kept::common ? group_.allocate_common(bytes) : group_.allocate(bytes);
  if (!memory_) {
    throw RuntimeError(fmt::format(
        "no room in /dev/shm for the parameters that the ranks of a node have in common, nor for "
        "buffers of their gradients (the next {} bytes of them); make it larger, or divide "
        "gradients only (--shard gradients; in a program, of a model that is built again)",
        bytes));
  }
  values_ = tensor_on(memory_, flat_.elements, options);
  mine_ = mine_in(values_);
}

// Gradients and everything else that knows the parameters as tensors stay with them.
void FlatShard::move_to_memory(UnitCalls* calls) {
  const auto options = arrays_.front().options().requires_grad(false);
  allocate(options);
  make_parts();
  fill();
  const auto bytes = static_cast<std::size_t>(flat_.elements) * options.dtype().itemsize();
  storage_ = c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                          marked(memory_between_steps(), calls, options.device()));
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    auto array = torch::empty({0}, options);
    array.set_(storage_, flat_.offsets[i], arrays_[i].sizes(), arrays_[i].strides());
    arrays_[i].set_data(array);
  }
}

// Before the parameters move.
void FlatShard::fill() const {
  if (kept_ == Kept::whole) {
    for (std::size_t i = 0; i < arrays_.size(); ++i) window_of(values_, i).copy_(arrays_[i]);
    return;
  }
  for (const auto& part : parts_) {
    part.values.detach().copy_(rows_in(arrays_[part.rows.array], part.rows));
  }
  if (kept_ == Kept::common) group_.barrier("common parameters").wait();
}

// Null for parameters that are not whole then.
void* FlatShard::memory_between_steps() const {
  return values_.defined() ? values_.data_ptr() : nullptr;
}

FlatShard::~FlatShard() {
  if (kept_ == Kept::whole) {
    // The parameters keep the memory that they are in.
    const auto owner = tensor_on(memory_, flat_.elements, values_.options());
    storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(
        owner.storage().set_data_ptr(c10::DataPtr(nullptr, values_.device())));
    return;
  }
  storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, mine_.device()));
}

torch::Tensor FlatShard::mine_in(const torch::Tensor& flat) const {
  const auto rank = static_cast<std::size_t>(group_.rank());
  return window(flat, first_, {static_cast<std::int64_t>(part_sizes_[rank])}, {1});
}

torch::Tensor FlatShard::window_of(const torch::Tensor& flat, std::size_t index) const {
  return window(flat, flat_.offsets[index], arrays_[index].sizes(), arrays_[index].strides());
}

void FlatShard::make_parts() {
  for (const auto& rows : rows_of(plan_, sizes_, group_.rank())) {
    const std::int64_t width = sizes_[rows.array].row_elements;
    const std::int64_t offset = flat_.offsets[rows.array] + rows.first * width - first_;
    auto values = window(mine_, offset, {rows.count * width}, {1});
    values.requires_grad_(arrays_[rows.array].requires_grad());
    parts_.push_back({rows, offset, std::move(values)});
  }
}

torch::Tensor FlatShard::rows_in(const torch::Tensor& whole, const RowRange& rows) const {
  const std::int64_t width = sizes_[rows.array].row_elements;
  return window(whole.detach(), rows.first * width, {rows.count * width}, {1});
}

std::vector<std::size_t> FlatShard::sizes_by_rank(std::size_t array) const {
  return ddp::sizes_by_rank(plan_, sizes_, array);
}

void FlatShard::start_gather(WholeMemory& memory, const std::string& label) {
  if (is_whole()) return;
  const auto options = mine_.options();
  const auto bytes = flat_.elements * static_cast<std::int64_t>(options.dtype().itemsize());
  whole_ = memory.take(bytes, options.device());
  const auto flat = tensor_on(whole_, flat_.elements, options);
  const auto keep =
      std::make_shared<const std::pair<torch::Tensor, std::shared_ptr<std::byte>>>(whole_, memory_);
  if (mine_.is_cpu()) {
    auto part = buffer_of(mine_);
    part.data = memory_.get();  // also if it is empty, so that all ranks gather in the same way
    gather_ = group_.all_gather(part, buffer_of(flat), comm::Cut{part_sizes_}, label, keep);
    started_ = gather_;
    return;
  }
  if (has_equal_parts()) {
    gather_ = group_.all_gather(buffer_of(mine_), buffer_of(flat), label, keep);
  } else {
    mine_in(flat).copy_(mine_);
    gather_ = group_.all_gather(buffer_of(flat), comm::Cut{part_sizes_}, label, keep);
  }
  started_ = gather_;
}

bool FlatShard::has_equal_parts() const {
  return !mine_.is_cpu() && std::ranges::count(part_sizes_, part_sizes_.front()) ==
                                static_cast<std::ptrdiff_t>(part_sizes_.size());
}

void FlatShard::wait() {
  gather_.wait();
  if (started_) waited_for_ = std::exchange(started_, std::nullopt);
  if (whole_.defined()) point_storage_at(whole_.data_ptr());
}

void FlatShard::point_storage_at(void* memory) {
  storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(
      marked(memory, storage_.data_ptr().get_context(), mine_.device()));
}

void FlatShard::copy_common(WholeMemory& memory) {
  if (kept_ != Kept::common || whole_.defined()) return;
  const torch::NoGradGuard no_grad;
  whole_ = memory.take(static_cast<std::int64_t>(values_.nbytes()), values_.device());
  tensor_on(whole_, flat_.elements, values_.options()).copy_(values_);
  point_storage_at(whole_.data_ptr());
}

void FlatShard::note_versions() {
  if (kept_ != Kept::common) return;
  versions_.clear();
  for (const auto& array : arrays_) {
    versions_.push_back(static_cast<std::uint32_t>(array._version()));
  }
}

std::optional<std::size_t> FlatShard::changed_array() const {
  for (std::size_t i = 0; i < versions_.size(); ++i) {
    if (static_cast<std::uint32_t>(arrays_[i]._version()) != versions_[i]) return i;
  }
  return std::nullopt;
}

void FlatShard::pretend() {
  if (storage_.data_ptr().get() != nullptr) return;
  pretended_ = torch::zeros({flat_.elements}, mine_.options());
  point_storage_at(pretended_.data_ptr());
}

void FlatShard::release(WholeMemory& memory) noexcept {
  if (std::exchange(pretended_, torch::Tensor()).defined()) point_storage_at(nullptr);
  if (!whole_.defined()) return;
  bool failed = false;
  try {
    gather_.wait();
  } catch (const std::exception&) {
    failed = true;
  }
  const auto started = std::exchange(started_, std::nullopt);
  if (started && !failed) waited_for_ = started;
  point_storage_at(memory_between_steps());
  auto whole = std::exchange(whole_, torch::Tensor());
  if (!failed) memory.give_back(std::move(whole));
}

void FlatShard::publish(const std::string& label) {
  if (is_divided() || group_.size() == 1) return;
  gather_ = group_.all_gather(buffer_of(values_), comm::Cut{part_sizes_}, label, memory_);
}

void FlatShard::keep_changes() {
  if (!is_divided()) return;
  const torch::NoGradGuard no_grad;
  const auto flat = tensor_on(whole_, flat_.elements, mine_.options());
  mine_.copy_(mine_in(flat));
}

bool FlatShard::has_storage_of(const torch::Tensor& tensor) const {
  return tensor.storage().unsafeGetStorageImpl() == storage_.unsafeGetStorageImpl();
}

bool FlatShard::owns(std::size_t array) const {
  return has_storage_of(arrays_[array]);
}

}  // namespace ddp
