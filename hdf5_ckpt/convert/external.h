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
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/core/array.h"

namespace ddp::ckpt {

// Location and form of an array: element (i, j, ...) is at offset + (i * strides[0] + ...) *
// itemsize.
struct ExternalArray {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<std::uint64_t> strides;  // in elements; usually those of a dense array
  std::uint64_t offset = 0;            // bytes from the start of the file
  std::size_t file = 0;                // of a source in several files
  // What distinguishes the values from the bytes.
  bool big_endian = false;
  bool negated = false;
  bool conjugated = false;
  // There are no bytes at `offset`: decode_hdf5() makes the values.
  bool encoded = false;
  std::optional<std::uint32_t> crc32c = {};  // of its bytes, if the file has it
};

// A part of a file that is not read, or not as it is, and the reason.
struct Omission {
  std::string name;
  std::string reason;
};

// Omissions that are counted, of which the first ones are named.
class Omissions {
 public:
  void add(std::string name, std::string reason);
  void add(const Omissions& others);
  std::size_t count() const noexcept { return count_; }
  const std::vector<Omission>& named() const noexcept { return named_; }

 private:
  std::size_t count_ = 0;
  std::vector<Omission> named_;
};

// The contents of a file or of several files that belong together.
struct FileContents {
  std::vector<ExternalArray> arrays;  // sorted by name
  // Arrays that the file has, but whose values cannot be read: a model without them is incomplete.
  std::vector<Omission> unreadable;
  // Arrays whose names in the file a checkpoint cannot hold, by the names that they have instead.
  std::vector<Omission> renamed;
  // Numbers, strings and booleans by their paths ("optimizer/param_groups/0/lr"): only values that
  // JSON can represent, up to a limit.
  nlohmann::json values = nlohmann::json::object();
  Omissions left_out;              // objects that are neither arrays nor such values
  std::size_t hidden_tensors = 0;  // tensors in such objects
};

// "2 tensors cannot be read: 'w' (its type is F4, ...), 'v' (...)" and what was left out, the first
// ones of each; empty if nothing was.
std::string omissions_text(const FileContents& contents);

// The same for the arrays that were renamed.
std::string renamings_text(const FileContents& contents);

// Limit on the size of a header.
inline constexpr std::uint64_t kMaxExternalHeader = 100000000;  // the limit of safetensors itself

// Parses the header of a safetensors file. `head` is the beginning of the file and includes the
// header; `size` is the size of the whole file. Dots in names are kept. Throws DamagedError.
FileContents parse_safetensors(std::span<const std::byte> head, std::uint64_t size);

// Parses a complete torch.save file: a zip of a pickle and raw storages, or the format before
// PyTorch 1.6. Returns the tensors in its dictionaries and lists by their paths
// ("model/conv1.weight"). Objects of other classes are left out. Throws DamagedError.
FileContents parse_torch_file(std::span<const std::byte> file);

// True if the elements are contiguous and in row-major order, and their bytes are their values.
bool is_plain(const ExternalArray& array);

// Row-major.
std::vector<std::uint64_t> dense_strides(const Shape& shape);

// Fills `out` with the elements of an array starting at element `first`, in the order in which a
// checkpoint stores them; the array must not be encoded. The parsers have checked that the whole
// array lies inside `file`.
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
