// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/array_views.h"

#include <fmt/format.h>

#include <cstddef>

#include "base/errors.h"

namespace ddp::train {
namespace {

ckpt::DType dtype_of(torch::ScalarType type) {
  if (const auto known = stored_type(type)) return *known;
  throw RuntimeError(
      fmt::format("tensors of type {} cannot be stored in a checkpoint", c10::toString(type)));
}

ckpt::Shape shape_of(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

ckpt::MutableArrayView mutable_view(const NamedTensor& t) {
  if (!t.tensor.is_contiguous()) {
    throw RuntimeError(fmt::format("'{}' is not contiguous, so its memory is no array", t.name));
  }
  return {t.name,
          dtype_of(t.tensor.scalar_type()),
          shape_of(t.tensor),
          {static_cast<std::byte*>(t.tensor.data_ptr()), t.tensor.nbytes()}};
}

}  // namespace

std::optional<ckpt::DType> stored_type(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat64:
      return ckpt::DType::float64;
    case torch::kFloat32:
      return ckpt::DType::float32;
    case torch::kFloat16:
      return ckpt::DType::float16;
    case torch::kBFloat16:
      return ckpt::DType::bfloat16;
    case torch::kInt64:
      return ckpt::DType::int64;
    case torch::kInt32:
      return ckpt::DType::int32;
    case torch::kInt16:
      return ckpt::DType::int16;
    case torch::kInt8:
      return ckpt::DType::int8;
    case torch::kUInt8:
      return ckpt::DType::uint8;
    case torch::kBool:
      return ckpt::DType::boolean;
    case torch::kComplexFloat:
      return ckpt::DType::complex64;
    case torch::kComplexDouble:
      return ckpt::DType::complex128;
    default:
      return std::nullopt;
  }
}

torch::ScalarType scalar_type(ckpt::DType type) {
  for (const auto known : {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16,
                           torch::kInt64, torch::kInt32, torch::kInt16, torch::kInt8, torch::kUInt8,
                           torch::kBool, torch::kComplexFloat, torch::kComplexDouble}) {
    if (stored_type(known) == type) return known;
  }
  throw RuntimeError(
      fmt::format("arrays of type {} cannot become tensors", ckpt::dtype_name(type)));
}

std::vector<NamedTensor> on_host(std::vector<NamedTensor> tensors) {
  for (auto& t : tensors) t.tensor = t.tensor.to(torch::kCPU);
  return tensors;
}

std::vector<ckpt::ArrayView> array_views(const std::vector<NamedTensor>& tensors) {
  std::vector<ckpt::ArrayView> views;
  views.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    const auto view = mutable_view(tensor);
    views.push_back({view.name, view.dtype, view.shape, view.bytes});
  }
  return views;
}

std::vector<ckpt::MutableArrayView> mutable_views(const std::vector<NamedTensor>& tensors) {
  std::vector<ckpt::MutableArrayView> views;
  views.reserve(tensors.size());
  for (const auto& tensor : tensors) views.push_back(mutable_view(tensor));
  return views;
}

}  // namespace ddp::train
