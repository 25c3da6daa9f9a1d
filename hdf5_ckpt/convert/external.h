#pragma once
// Arrays in files of other programs: safetensors, and what torch.save writes. Files of unknown
// origin are parsed by our own code, which never executes anything they say; every size, offset and
// count is checked before it is used, and each thing that can be wrong has its own sentence.

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

// An array where it lies: element (i, j, ...) is at offset + (i * strides[0] + ...) * itemsize.
struct ExternalArray {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<std::uint64_t> strides;  // in elements; those of a dense array are usual
  std::uint64_t offset = 0;            // bytes from the start of the file
};

// Bounds on what is read.
inline constexpr std::uint64_t kMaxExternalHeader = 100000000;  // as safetensors itself

// What a safetensors file holds, sorted by name; `head` is the file from its start, as far as it
// was asked for, `size` the size of all of it. Throws DamagedError. Names keep their dots.
std::vector<ExternalArray> parse_safetensors(std::span<const std::byte> head, std::uint64_t size);

// What is in a file of torch.save.
struct TorchFile {
  std::vector<ExternalArray> arrays;
  // Numbers, texts and truth values by the path to them ("optimizer/param_groups/0/lr"), as far as
  // JSON can hold them and up to a bound.
  nlohmann::json values = nlohmann::json::object();
  std::size_t left_out = 0;  // further ones
};

// What the whole file of torch.save holds (a zip of a pickle and raw storages, PyTorch 1.6 and
// later): tensors in dictionaries and lists, by the path to them ("model/conv1.weight"). Of the
// pickle only what builds those is understood, everything else is refused. Throws DamagedError.
TorchFile parse_torch_file(std::span<const std::byte> file);

// Whether its elements lie one after the other, in their order.
bool is_dense(const ExternalArray& array);

// Fills `out` with the elements of an array from number `first` on, in the order in which a
// checkpoint keeps them. The parsers have checked that all of the array lies inside `file`.
void copy_elements(std::span<const std::byte> file, const ExternalArray& array, std::uint64_t first,
                   std::span<std::byte> out);

// An array to be written. Names are as they are to be in the file.
struct ArrayHeader {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
};

// Passes all bytes of array number `index` to `take`, in their order, in as many pieces as it
// likes: so a file can be larger than memory.
using TakeBytes = std::function<void(std::span<const std::byte>)>;
using GiveBytes = std::function<void(std::size_t index, const TakeBytes& take)>;

// Both write a new file durably and throw Error if there is one; if `give` throws, nothing is left.
// torch.load reads the second as a dictionary, also with weights_only; it may have 4 GiB, a limit
// of plain zip files.
void write_safetensors(const std::filesystem::path& path, std::span<const ArrayHeader> arrays,
                       const GiveBytes& give);
void write_torch_file(const std::filesystem::path& path, std::span<const ArrayHeader> arrays,
                      const GiveBytes& give);

}  // namespace ddp::ckpt
