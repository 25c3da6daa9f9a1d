// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

#include <fmt/format.h>

#include <optional>

#include "base/errors.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {
namespace {

std::optional<comm::ElementType> element_type(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return comm::ElementType::f32;
    case torch::kFloat64:
      return comm::ElementType::f64;
    case torch::kBFloat16:
      return comm::ElementType::bf16;
    case torch::kFloat16:
      return comm::ElementType::f16;
    case torch::kInt64:
      return comm::ElementType::i64;
    case torch::kInt32:
      return comm::ElementType::i32;
    case torch::kInt16:
      return comm::ElementType::i16;
    case torch::kInt8:
      return comm::ElementType::i8;
    case torch::kUInt8:
    case torch::kBool:
      return comm::ElementType::u8;
    default:
      return std::nullopt;
  }
}

comm::Buffer memory_of(const torch::Tensor& tensor, std::size_t count, comm::ElementType type) {
  if (!tensor.is_contiguous()) throw RuntimeError("only contiguous tensors can be communicated");
  comm::Buffer buffer{static_cast<std::byte*>(tensor.data_ptr()), count, type};
  if (!tensor.device().is_cpu()) {
    buffer.memory = comm::Memory::device;
    buffer.stream = torch_compat::current_stream(tensor.device());
  }
  return buffer;
}

}  // namespace

bool can_be_communicated(torch::ScalarType type) {
  return element_type(type).has_value();
}

comm::Buffer buffer_of(const torch::Tensor& tensor) {
  const auto type = element_type(tensor.scalar_type());
  if (!type) {
    throw RuntimeError(fmt::format("tensors of type {} cannot be communicated",
                                   c10::toString(tensor.scalar_type())));
  }
  return memory_of(tensor, static_cast<std::size_t>(tensor.numel()), *type);
}

comm::Buffer parts_of_complex(const torch::Tensor& tensor) {
  return memory_of(tensor, 2 * static_cast<std::size_t>(tensor.numel()),
                   element_type(c10::toRealValueType(tensor.scalar_type())).value());
}

comm::Buffer bytes_of(const torch::Tensor& tensor) {
  return memory_of(tensor, tensor.nbytes(), comm::ElementType::u8);
}

}  // namespace ddp
