// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/array_views.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "base/errors.h"

namespace ddp::train {
namespace {

ckpt::DType dtype_of(torch::ScalarType type) {
  if (const auto known = stored_type(type)) return *known;
  throw RuntimeError(
      fmt::format("tensors of type {} cannot be stored in a checkpoint", c10::toString(type)));
}

ckpt::Shape shape_of(at::IntArrayRef sizes) {
  return {sizes.begin(), sizes.end()};
}

// A rank that has all rows has the whole array, which all versions read.
std::optional<ckpt::PartOf> part_in(const StateArray& array) {
  if (array.tensor.sizes() == array.sizes()) return std::nullopt;
  ckpt::PartOf part{shape_of(array.sizes()), ckpt::Shape(array.sizes().size(), 0)};
  part.start.at(0) = static_cast<std::uint64_t>(array.division->first);
  return part;
}

ckpt::MutableArrayView mutable_view(const StateArray& t) {
  if (!t.tensor.is_contiguous()) {
    throw RuntimeError(fmt::format("'{}' is not contiguous, so its memory is no array", t.name));
  }
  return {t.name,
          dtype_of(t.tensor.scalar_type()),
          shape_of(t.tensor.sizes()),
          {static_cast<std::byte*>(t.tensor.data_ptr()), t.tensor.nbytes()},
          part_in(t)};
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

std::vector<StateArray> on_host(std::vector<StateArray> arrays) {
  for (auto& array : arrays) array.tensor = array.tensor.to(torch::kCPU);
  return arrays;
}

std::vector<ckpt::ArrayView> array_views(const std::vector<StateArray>& arrays) {
  std::vector<ckpt::ArrayView> views;
  views.reserve(arrays.size());
  for (const auto& array : arrays) {
    auto view = mutable_view(array);
    views.push_back({view.name, view.dtype, view.shape, view.bytes, std::move(view.part)});
  }
  return views;
}

std::vector<ckpt::MutableArrayView> mutable_views(const std::vector<StateArray>& arrays) {
  std::vector<ckpt::MutableArrayView> views;
  views.reserve(arrays.size());
  for (const auto& array : arrays) views.push_back(mutable_view(array));
  return views;
}

}  // namespace ddp::train
