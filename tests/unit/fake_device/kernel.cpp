// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fake_device/kernel.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/unit/fake_device/memory.h"
#include "tests/unit/fake_device/streams.h"

namespace ddp::fake_device {
namespace {

// A tensor with gaps is described by at most this number of ranges, else by one that includes the
// gaps.
constexpr std::size_t kMaxRanges = 256;

// The dimensions that move in memory, the smallest stride first.
std::vector<std::pair<int64_t, int64_t>> strides_and_sizes(const at::Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1 && tensor.stride(i) > 0) {
      dimensions.emplace_back(tensor.stride(i), tensor.size(i));
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  return dimensions;
}

std::vector<fake::Range> ranges_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  const auto itemsize = static_cast<int64_t>(tensor.itemsize());
  int64_t bytes = itemsize;  // of one piece without gaps
  std::vector<int64_t> starts = {0};
  for (const auto& [stride, size] : strides_and_sizes(tensor)) {
    const int64_t step = stride * itemsize;
    if (step <= bytes || starts.size() * static_cast<std::size_t>(size) > kMaxRanges) {
      bytes += step * (size - 1);
      continue;
    }
    std::vector<int64_t> more;
    for (int64_t i = 0; i < size; ++i) {
      for (const int64_t start : starts) more.push_back(start + i * step);
    }
    starts = std::move(more);
  }
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  std::vector<fake::Range> ranges;
  for (const int64_t start : starts) {
    ranges.push_back({data + start, static_cast<std::size_t>(bytes)});
  }
  return ranges;
}

// `place`: the memory, or a copy of it.
at::Tensor host_view(const at::Tensor& tensor, void* place) {
  const c10::Storage& storage = tensor.storage();
  c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    c10::DataPtr(place, c10::Device(c10::kCPU)), c10::GetAllocator(c10::kCPU),
                    /*resizable=*/true);
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(same), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  return view;
}

bool is_on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

// The memory of a tensor, from its first to its last element.
std::size_t extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return static_cast<std::size_t>(last + 1) * tensor.itemsize();
}

}  // namespace

Kernel::Kernel(std::string name, const c10::Device& device)
    : name_(std::move(name)),
      guard_(device),
      stream_(current_stream(guard_.current_device().index())),
      recording_(recording_of(stream_)) {
  require_working(stream_.device_index());
  if (!recording_) drain(stream_);
}

at::Tensor Kernel::host_view_of(const at::Tensor& tensor, bool writes) {
  const auto& storage = tensor.storage();
  return host_view(tensor, recording_ ? recording_->place_of(storage, writes)
                                      : const_cast<void*>(storage.data()));
}

at::Tensor Kernel::real_memory(const at::Tensor& tensor) {
  if (!is_on_device(tensor)) return tensor;
  return host_view(tensor, const_cast<void*>(tensor.storage().data()));
}

at::Tensor Kernel::reads(const at::Tensor& tensor) {
  if (!is_on_device(tensor)) return tensor;
  TORCH_CHECK(tensor.device() == stream_.device(), name_, " uses tensors of two devices, ",
              tensor.device(), " and ", stream_.device());
  const auto ranges = ranges_of(tensor);
  reads_.insert(reads_.end(), ranges.begin(), ranges.end());
  return host_view_of(tensor, false);
}

at::Tensor Kernel::writes(const at::Tensor& tensor) {
  if (!is_on_device(tensor)) return tensor;
  TORCH_CHECK(tensor.device() == stream_.device(), name_, " uses tensors of two devices, ",
              tensor.device(), " and ", stream_.device());
  return written_.emplace_back(Written{tensor, host_view_of(tensor, true)}).host;
}

at::Tensor Kernel::keep(const at::Tensor& result) {
  if (!result.defined()) return result;
  at::Tensor kept = at::detail::empty_strided_generic(
      result.sizes(), result.strides(), device_allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), result.scalar_type());
  std::memcpy(kept.data_ptr(), result.const_data_ptr(), extent(result));
  const auto ranges = ranges_of(kept);
  writes_.insert(writes_.end(), ranges.begin(), ranges.end());
  return kept;
}

void Kernel::resize_like_host(const Written& written) {
  const auto& [device, host] = written;
  auto* impl = device.unsafeGetTensorImpl();
  const void* const place =
      recording_ ? recording_->place_of(device.storage(), true) : device.storage().data();
  if (host.storage().data() != place) {
    TORCH_CHECK(!recording_ || place == device.storage().data(), name_,
                " resizes memory that is older than the capture");
    auto storage = device.storage();
    auto memory = device_allocator()->allocate(host.storage().nbytes());
    std::memcpy(memory.get(), host.storage().data(), host.storage().nbytes());
    storage.set_data_ptr_noswap(std::move(memory));
    storage.set_nbytes(host.storage().nbytes());
  }
  impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
}

void Kernel::launch(const std::function<Again()>& make_again, const std::function<void()>& run) {
  for (const auto& written : written_) {
    resize_like_host(written);
    const auto ranges = ranges_of(written.device);
    writes_.insert(writes_.end(), ranges.begin(), ranges.end());
  }
  if (recording_) {
    TORCH_CHECK(make_again, name_, " cannot be captured by the fake device");
    return recording_->add({name_, reads_, writes_, make_again()});
  }
  count_launch();
  fake_device::launch(stream_, name_, reads_, writes_, run);
}

void Kernel::wait_on_host() {
  if (recording_) recording_->refuse("wait for " + name_);
  fake_device::wait_on_host(stream_, name_);
}

}  // namespace ddp::fake_device
