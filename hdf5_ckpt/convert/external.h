// SPDX-License-Identifier: Apache-2.0
// Arrays in files of other programs: safetensors and torch.save. Files of unknown origin are parsed
// by our own code, which never executes anything in them; every size, offset and count is checked
// before it is used, and every possible defect has its own error message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/array.h"

namespace ddp::ckpt {

// Location of an array: element (i, j, ...) is at offset + (i * strides[0] + ...) * itemsize.
struct ExternalArray {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<std::uint64_t> strides;  // in elements; usually those of a dense array
  std::uint64_t offset = 0;            // bytes from the start of the file
};

// Limits on what is read.
inline constexpr std::uint64_t kMaxExternalHeader = 100000000;  // the limit of safetensors itself

// The arrays of a safetensors file, sorted by name; `head` is the beginning of the file, at least
// as much as was asked for, `size` the size of the whole file. Throws DamagedError. Dots in names
// are kept.
std::vector<ExternalArray> parse_safetensors(std::span<const std::byte> head, std::uint64_t size);

// The contents of a torch.save file.
struct TorchFile {
  std::vector<ExternalArray> arrays;
  // Numbers, strings and booleans by their paths ("optimizer/param_groups/0/lr"), those that JSON
  // can represent and up to a limit.
  nlohmann::json values = nlohmann::json::object();
  std::size_t left_out = 0;  // number of values beyond that
};

// Parses a complete torch.save file (a zip of a pickle and raw storages, PyTorch 1.6 and later):
// tensors in dictionaries and lists, by their paths ("model/conv1.weight"). Only the pickle opcodes
// that build those are accepted; everything else is rejected. Throws DamagedError.
TorchFile parse_torch_file(std::span<const std::byte> file);

// True if the elements are contiguous and in order.
bool is_dense(const ExternalArray& array);

// Fills `out` with the elements of an array starting at element `first`, in the order in which a
// checkpoint stores them. The parsers have checked that the whole array lies inside `file`.
void copy_elements(std::span<const std::byte> file, const ExternalArray& array, std::uint64_t first,
                   std::span<std::byte> out);

// An array to write. Names are written as they are.
struct ArrayHeader {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
};

// Passes all bytes of array `index` to `take`, in order and in any number of pieces, so that a file
// can be larger than memory.
using TakeBytes = std::function<void(std::span<const std::byte>)>;
using GiveBytes = std::function<void(std::size_t index, const TakeBytes& take)>;

// Both write a new file durably and throw Error if it exists; if `give` throws, no file is left.
// torch.load reads the second as a dictionary, also with weights_only; it is limited to 4 GiB, as
// plain zip files are.
void write_safetensors(const std::filesystem::path& path, std::span<const ArrayHeader> arrays,
                       const GiveBytes& give);
void write_torch_file(const std::filesystem::path& path, std::span<const ArrayHeader> arrays,
                      const GiveBytes& give);

}  // namespace ddp::ckpt
