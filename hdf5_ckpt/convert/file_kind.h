// SPDX-License-Identifier: Apache-2.0
// Recognizes files by their first bytes, not by their names, and says what to do with those that
// are not read here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "hdf5_ckpt/convert/zip.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {

// The file is of a kind that is not read here. The message names the kind and the remedy.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};

enum class FileKind : std::uint8_t { safetensors, torch_save, hdf5 };

// Throws UnsupportedError for any other kind. A file whose name ends in .safetensors and whose
// first bytes are of no known kind counts as a damaged safetensors file.
FileKind kind_of(const std::filesystem::path& path, std::span<const std::byte> bytes);

// "safetensors", "torch.save", "HDF5"
std::string_view kind_name(FileKind kind) noexcept;

// Throws UnsupportedError naming the program that writes zip files with these entries and without
// data.pkl, or TorchScript with it; returns if torch.save does.
void require_torch_entries(const ZipEntries& entries);

// The kinds that `ddp-ckpt convert` writes, by the ending of the name.
enum class TargetKind : std::uint8_t { safetensors, torch_save, directory };

// Throws UnsupportedError if the name ends as files of another kind do: a checkpoint is a
// directory.
TargetKind target_kind(const std::filesystem::path& to);

}  // namespace ddp::ckpt
