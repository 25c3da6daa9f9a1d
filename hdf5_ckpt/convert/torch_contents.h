// SPDX-License-Identifier: Apache-2.0
// The arrays and values of a torch.save file, from its pickle and the places of its storages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/pickle.h"
#include "hdf5_ckpt/convert/zip.h"

namespace ddp::ckpt {

// The element type of a storage "FloatStorage"; nullopt if a checkpoint cannot hold it.
// UntypedStorage consists of bytes.
std::optional<DType> storage_dtype(std::string_view type);

// The name of the storage with elements of this type; empty if PyTorch has none.
std::string_view storage_name(DType dtype);

// The storages of a file by their keys.
struct TorchStorages {
  ZipEntries places;
  bool big_endian = false;
  std::uint64_t file_bytes = 0;
};

// Throws DamagedError if a tensor is not inside its storage.
FileContents torch_contents(PicklePointer root, const TorchStorages& storages);

// Parses a file of torch.save before PyTorch 1.6: five pickles, then the storages.
FileContents parse_old_torch_file(std::span<const std::byte> file);

// Whether the file begins with the magic number of that format.
bool is_old_torch_file(std::span<const std::byte> file);

}  // namespace ddp::ckpt
