#pragma once
// Arrays in files of other programs: safetensors, and what torch.save writes. Files of unknown
// origin are parsed by our own code, which never executes anything they say; every size, offset and
// count is checked before it is used, and each thing that can be wrong has its own sentence.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/array.h"

namespace ddp::ckpt {

// An array where it lies: element (i, j, ...) is at offset + (i * strides[0] + ...) * itemsize.
struct ForeignArray {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<std::uint64_t> strides;  // in elements; those of a dense array are usual
  std::uint64_t offset = 0;            // bytes from the start of the file
};

// Bounds on what is read.
inline constexpr std::uint64_t kMaxForeignHeader = 100000000;  // as safetensors itself

// What a safetensors file holds, sorted by name; `head` is the file from its start, as far as it
// was asked for, `size` the size of all of it. Throws DamagedError. Names keep their dots.
std::vector<ForeignArray> parse_safetensors(std::span<const std::byte> head, std::uint64_t size);

// What the whole file of torch.save holds (a zip of a pickle and raw storages, PyTorch 1.6 and
// later): tensors in dictionaries and lists, by the path to them ("model/conv1.weight"). Of the
// pickle only what builds those is understood, everything else is refused. Throws DamagedError.
std::vector<ForeignArray> parse_torch_file(std::span<const std::byte> file);

// The dense bytes of an array of `file`. The parsers have checked that all of it lies inside.
std::vector<std::byte> dense_bytes(std::span<const std::byte> file, const ForeignArray& array);

// Both write a new file durably and throw Error if there is one. The arrays are of one checkpoint,
// names as they are to be in the file. torch.load reads the second as a dictionary, also with
// weights_only; it may have 4 GiB, a limit of plain zip files.
void write_safetensors(const std::filesystem::path& path, std::span<const ArrayView> arrays);
void write_torch_file(const std::filesystem::path& path, std::span<const ArrayView> arrays);

}  // namespace ddp::ckpt
