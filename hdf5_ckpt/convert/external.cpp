// SPDX-License-Identifier: Apache-2.0
// Copies the elements of an external array in the order and the form in which a checkpoint stores
// them.

#include "hdf5_ckpt/convert/external.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace ddp::ckpt {
namespace {

constexpr std::size_t kMaxNamed = 1000;
constexpr std::size_t kMaxShown = 8;

bool is_dense(const ExternalArray& array) {
  std::uint64_t usual = 1;
  for (std::size_t d = array.shape.size(); d-- > 0;) {
    if (array.shape[d] == 0) return true;
    if (array.shape[d] != 1 && array.strides[d] != usual) return false;
    usual *= array.shape[d];
  }
  return true;
}

bool is_complex(DType dtype) {
  return dtype == DType::complex64 || dtype == DType::complex128;
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::int64:
    case DType::int32:
    case DType::int16:
    case DType::int8:
    case DType::uint8:
    case DType::uint16:
    case DType::uint32:
    case DType::uint64:
      return true;
    default:
      return false;
  }
}

// Changes the sign of the number in these bytes: two's complement, or the sign bit of a float.
void negate(std::span<std::byte> number, bool integer) {
  if (!integer) {
    number.back() ^= std::byte{0x80};
    return;
  }
  unsigned carry = 1;
  for (std::byte& byte : number) {
    carry += std::to_integer<unsigned>(~byte);
    byte = static_cast<std::byte>(carry);
    carry >>= 8U;
  }
}

// Makes values of bytes that are in the order of the elements.
void transform(const ExternalArray& array, std::span<std::byte> out) {
  const std::size_t parts = is_complex(array.dtype) ? 2 : 1;  // real, imaginary
  const std::size_t width = itemsize(array.dtype) / parts;
  const bool integer = is_integer(array.dtype);
  for (std::size_t i = 0; i < out.size() / width; ++i) {
    const auto number = out.subspan(i * width, width);
    if (array.big_endian) std::reverse(number.begin(), number.end());
    const bool imaginary = parts == 2 && i % 2 == 1;
    if (array.negated != (array.conjugated && imaginary)) negate(number, integer);
  }
}

void gather(std::span<const std::byte> file, const ExternalArray& array, std::uint64_t first,
            std::span<std::byte> out) {
  const std::size_t item = itemsize(array.dtype);
  Shape index(array.shape.size(), 0);
  for (std::size_t d = index.size(); d-- > 0 && array.shape[d] != 0;) {
    index[d] = first % array.shape[d];
    first /= array.shape[d];
  }
  for (std::size_t at = 0; at < out.size(); at += item) {
    std::uint64_t element = 0;
    for (std::size_t d = 0; d < index.size(); ++d) element += index[d] * array.strides[d];
    std::memcpy(out.data() + at, file.data() + array.offset + element * item, item);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < array.shape[d]) break;
      index[d] = 0;
    }
  }
}

// "2 arrays cannot be read: 'w' (its type is F4), 'v' (...)", with the first ones.
std::string list_text(const char* what, const char* fate, std::size_t count,
                      std::span<const Omission> named) {
  if (count == 0) return "";
  std::string text = counted(count, what) + fate + ": ";
  const auto shown = named.first(std::min(named.size(), kMaxShown));
  for (const Omission& one : shown)
    text += fmt::format("{}'{}' ({})", &one == shown.data() ? "" : ", ",
                        sanitize_beginning(one.name, 100), sanitize_beginning(one.reason, 200));
  return text + (count > shown.size() ? ", ..." : "");
}

}  // namespace

void Omissions::add(std::string name, std::string reason) {
  ++count_;
  if (named_.size() < kMaxNamed) named_.push_back({std::move(name), std::move(reason)});
}

void Omissions::add(const Omissions& others) {
  count_ += others.count_;
  for (const Omission& one : others.named_)
    if (named_.size() < kMaxNamed) named_.push_back(one);
}

std::string omissions_text(const FileContents& contents) {
  std::string text =
      list_text("array", " cannot be read", contents.unreadable.size(), contents.unreadable);
  const Omissions& left_out = contents.left_out;
  const std::string others =
      list_text("object", left_out.count() == 1 ? " was left out" : " were left out",
                left_out.count(), left_out.named());
  return text + (text.empty() || others.empty() ? "" : "; ") + others;
}

std::string renamings_text(const FileContents& contents) {
  const std::size_t count = contents.renamed.size();
  return list_text("array", count == 1 ? " was renamed" : " were renamed", count, contents.renamed);
}

bool is_plain(const ExternalArray& array) {
  return is_dense(array) && !array.big_endian && !array.negated && !array.conjugated &&
         !array.encoded;
}

std::vector<std::uint64_t> dense_strides(const Shape& shape) {
  std::vector<std::uint64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

void copy_elements(std::span<const std::byte> file, const ExternalArray& array, std::uint64_t first,
                   std::span<std::byte> out) {
  if (out.empty()) return;
  if (is_dense(array))
    std::memcpy(out.data(), file.data() + array.offset + first * itemsize(array.dtype), out.size());
  else
    gather(file, array, first, out);
  if (array.big_endian || array.negated || array.conjugated) transform(array, out);
}

}  // namespace ddp::ckpt
