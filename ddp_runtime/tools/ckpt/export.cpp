// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt convert, from a checkpoint to a file of another program.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/errors.h"
#include "ddp_runtime/tools/ckpt/conversion.h"
#include "hdf5_ckpt/convert/checkpoint_arrays.h"
#include "hdf5_ckpt/convert/name_map.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;

// An array of the checkpoint under its name in the file.
struct Exported {
  std::string name;
  const StoredArray* array;
  bool transposed = false;
};

// The number of threads that can hold one block each within the memory limit.
unsigned threads_for(const Checkpoint& checkpoint, const Output& output) {
  std::uint64_t block = kMinBlockBytes;
  for (const FileInfo& file : checkpoint.manifest().files)
    block = std::max(block, file.block_bytes);
  return static_cast<unsigned>(std::min<std::uint64_t>(output.threads, 1 + kPieceBytes / block));
}

std::vector<Exported> chosen_from(const Checkpoint& checkpoint, const Conversion& conversion) {
  const Choice choice(conversion);
  std::vector<CheckpointArray> all = checkpoint_arrays(checkpoint, conversion.prefix);
  std::vector<std::string> all_names;
  all_names.reserve(all.size());
  for (const CheckpointArray& array : all) all_names.push_back(array.name);
  choice.require_effect(all_names);
  std::erase_if(all, [&](const CheckpointArray& array) { return !choice.takes(array.name); });
  std::vector<std::string_view> names;
  names.reserve(all.size());
  for (const CheckpointArray& array : all) names.push_back(array.name);
  std::vector<Exported> chosen;
  for (auto& [name, place] : require_prefix(conversion.prefix, names, checkpoint.path()))
    chosen.push_back({std::move(name), &checkpoint.arrays()[all[place].index]});
  return chosen;
}

// Gives the arrays the names of the map. They differ, because each leads to one name of ours.
void rename_by(const NameMap& map, std::vector<Exported>& arrays) {
  for (Exported& one : arrays) {
    const MappedName theirs = map.map_back(one.name);
    if (theirs.transposed && one.array->shape.size() != 2)
      throw UsageError(fmt::format("the map '{}' transposes '{}', which is not a matrix",
                                   map.origin(), one.name));
    one.name = *theirs.name;
    one.transposed = theirs.transposed;
  }
}

Shape turned(const Shape& matrix) {
  return {matrix[1], matrix[0]};
}

// Reads the whole matrix, because its columns are spread over all of its bytes.
void give_transposed(const Checkpoint& checkpoint, const StoredArray& matrix,
                     const ReadOptions& options, const TakeBytes& take) {
  std::vector<std::byte> stored;
  stored.reserve(matrix.length);
  checkpoint.stream(matrix.name, kPieceBytes, options, [&](std::span<const std::byte> bytes) {
    stored.insert(stored.end(), bytes.begin(), bytes.end());
  });
  ExternalArray view;
  view.dtype = matrix.dtype;
  view.shape = turned(matrix.shape);
  view.strides = {1, matrix.shape[1]};
  const std::size_t item = itemsize(matrix.dtype);
  std::vector<std::byte> piece(std::min<std::uint64_t>(stored.size(), kPieceBytes));
  for (std::size_t at = 0; at < stored.size(); at += piece.size()) {
    piece.resize(std::min(piece.size(), stored.size() - at));
    copy_elements(stored, view, at / item, piece);
    take(piece);
  }
}

}  // namespace

std::size_t export_checkpoint(const Checkpoint& checkpoint, const fs::path& to, TargetKind kind,
                              const Conversion& conversion, const Output& output) {
  if (kind == TargetKind::directory)
    throw UsageError(
        fmt::format("'{}' is a checkpoint already; name a file to convert it to, which "
                    "ends in .safetensors, or in .pt (.pth, .bin, .ckpt) for "
                    "torch.save's format, not '{}'",
                    checkpoint.path().string(), to.string()));
  std::vector<Exported> chosen = chosen_from(checkpoint, conversion);
  if (!conversion.map.empty()) rename_by(NameMap::open(conversion.map), chosen);
  Arrays arrays;
  for (const auto& [name, array, transposed] : chosen)
    arrays.headers.push_back(
        {name, array->dtype, transposed ? turned(array->shape) : array->shape});
  const ReadOptions options{threads_for(checkpoint, output), {}};
  arrays.give = [&](std::size_t index, const TakeBytes& take) {
    const Exported& one = chosen[index];
    if (one.transposed) return give_transposed(checkpoint, *one.array, options, take);
    checkpoint.stream(one.array->name, kPieceBytes, options, take);
  };
  write_arrays(to, kind, arrays);
  if (leaves_the_average(checkpoint, conversion.prefix))
    fmt::print(
        "the run evaluated the averages of its weights (--ema), not these; --prefix average/ "
        "takes them\n");
  return chosen.size();
}

}  // namespace ddp::ckpt::tool
