// SPDX-License-Identifier: Apache-2.0
// Arrays in files of other programs: safetensors and torch.save. The files are of unknown origin,
// so our own parsers read them and never execute their contents. They check every size, offset and
// count before using it, and report every kind of defect with its own message.
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

// Limit on the size of a header.
inline constexpr std::uint64_t kMaxExternalHeader = 100000000;  // the limit of safetensors itself

// Parses the header of a safetensors file and returns its arrays, sorted by name. `head` is the
// beginning of the file and includes the header; `size` is the size of the whole file. Dots in
// names are kept. Throws DamagedError.
std::vector<ExternalArray> parse_safetensors(std::span<const std::byte> head, std::uint64_t size);

// The contents of a torch.save file.
struct TorchFile {
  std::vector<ExternalArray> arrays;
  // Numbers, strings and booleans by their paths ("optimizer/param_groups/0/lr"): only values that
  // JSON can represent, up to a limit.
  nlohmann::json values = nlohmann::json::object();
  std::size_t left_out = 0;  // number of values left out
};

// Parses a complete torch.save file (a zip of a pickle and raw storages, PyTorch 1.6 and later) and
// returns the tensors in its dictionaries and lists by their paths ("model/conv1.weight"). Accepts
// only the pickle opcodes that build such tensors, dictionaries and lists, and rejects all others.
// Throws DamagedError.
TorchFile parse_torch_file(std::span<const std::byte> file);

// True if the elements are contiguous and in row-major order.
bool is_dense(const ExternalArray& array);

// Fills `out` with the elements of an array starting at element `first`, in the order in which a
// checkpoint stores them. The parsers have checked that the whole array lies inside `file`.
void copy_elements(std::span<const std::byte> file, const ExternalArray& array, std::uint64_t first,
                   std::span<std::byte> out);

// An array to write. Its name is written unchanged.
struct ArrayHeader {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
};

// Passes all bytes of array `index` to `take`, in order and in any number of pieces, so that a file
// can be larger than memory.
using TakeBytes = std::function<void(std::span<const std::byte>)>;
using GiveBytes = std::function<void(std::size_t index, const TakeBytes& take)>;

// These functions write a new file durably. They throw Error if the file exists; if `give` throws,
// they leave no file. torch.load reads the torch.save file as a dictionary, even with weights_only.
// That file is limited to 4 GiB, like all zip files without zip64.
void write_safetensors(const std::filesystem::path& path, std::span<const ArrayHeader> arrays,
                       const GiveBytes& give);
void write_torch_file(const std::filesystem::path& path, std::span<const ArrayHeader> arrays,
                      const GiveBytes& give);

}  // namespace ddp::ckpt
