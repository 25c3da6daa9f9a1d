// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/array_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "hdf5_ckpt/checkpoint.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/convert/mapped_file.h"
#include "hdf5_ckpt/error.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpointPrefix = "model/";

// An array of the source under its own name.
struct Named {
  ArrayHeader header;
  std::size_t index;
};

std::vector<Named> with_prefix(std::vector<Named> all, const std::string& prefix,
                               const fs::path& path) {
  std::vector<Named> chosen;
  for (auto& array : all) {
    auto& name = array.header.name;
    if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
    name.erase(0, prefix.size());
    chosen.push_back(std::move(array));
  }
  if (!chosen.empty()) return chosen;
  if (all.empty()) throw UsageError(fmt::format("'{}' holds no arrays", path.string()));
  throw UsageError(
      fmt::format("'{}' has no array whose name starts with '{}'; one of its names is '{}'",
                  path.string(), prefix, all.front().header.name));
}

std::vector<ExternalArray> parse_file(const fs::path& path, std::span<const std::byte> bytes) {
  switch (kind_of(path, bytes)) {
    case FileKind::safetensors:
      return parse_safetensors(bytes, bytes.size());
    case FileKind::torch_save:
      return parse_torch_file(bytes).arrays;
    case FileKind::hdf5:
      break;
  }
  // libhdf5 reads unknown files in a child process, which a process with threads cannot start.
  throw UsageError(
      fmt::format("'{0}' is a plain HDF5 file; convert it first: ddp-ckpt convert '{0}' DIRECTORY "
                  "--prefix model/",
                  path.string()));
}

// The checkpoint itself, or the newest whole one of a directory of checkpoints.
Checkpoint open_checkpoint(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path / kManifestName, ignored)) return Checkpoint::open(path);
  auto newest = CheckpointDirectory(path).newest_verified();
  if (newest) return std::move(newest->checkpoint);
  throw UsageError(fmt::format("there is no checkpoint in '{}'", path.string()));
}

}  // namespace

struct ArraySource::Contents {
  fs::path path;
  std::vector<ArrayHeader> arrays;
  std::vector<std::size_t> indices;  // of `arrays` in the checkpoint or the file
  std::optional<Checkpoint> checkpoint;
  // Without a checkpoint:
  std::optional<MappedFile> file;
  std::vector<ExternalArray> external;

  void keep(std::vector<Named> all, const std::string& prefix) {
    auto chosen = with_prefix(std::move(all), prefix, path);
    for (auto& array : chosen) {
      arrays.push_back(std::move(array.header));
      indices.push_back(array.index);
    }
  }

  void read_checkpoint(std::span<const Read> reads) const {
    std::vector<MutableArrayView> targets;
    for (const Read& read : reads) {
      const StoredArray& stored = checkpoint->arrays()[indices[read.array]];
      targets.push_back({stored.name, stored.dtype, stored.shape, read.out, {}});
    }
    checkpoint->read_into(targets, Match::subset);
  }

  void read_file(std::span<const Read> reads) const {
    for (const Read& read : reads) {
      const ExternalArray& array = external[indices[read.array]];
      if (is_dense(array) && !read.out.empty()) {
        std::memcpy(read.out.data(), file->bytes().data() + array.offset, read.out.size());
      } else {
        copy_elements(file->bytes(), array, 0, read.out);
      }
    }
  }
};

ArraySource::ArraySource(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
ArraySource::ArraySource(ArraySource&&) noexcept = default;
ArraySource& ArraySource::operator=(ArraySource&&) noexcept = default;
ArraySource::~ArraySource() = default;

ArraySource ArraySource::open(const fs::path& path, const std::optional<std::string>& prefix) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw UsageError(fmt::format("there is no file or checkpoint '{}'{}", path.string(),
                                 error ? ": " + error.message() : std::string()));
  }
  auto contents = std::make_unique<Contents>();
  contents->path = path;
  std::vector<Named> all;
  if (fs::is_directory(path, error)) {
    contents->checkpoint = open_checkpoint(path);
    contents->path = contents->checkpoint->path();
    for (const auto& array : contents->checkpoint->arrays())
      all.push_back({{array.name, array.dtype, array.shape}, all.size()});
  } else {
    try {
      contents->file.emplace(path);
      contents->external = parse_file(path, contents->file->bytes());
    } catch (const DamagedError& e) {
      throw DamagedError(fmt::format("'{}' cannot be read: {}", path.string(), e.what()));
    }
    for (const auto& array : contents->external)
      all.push_back({{array.name, array.dtype, array.shape}, all.size()});
  }
  contents->keep(std::move(all), prefix.value_or(contents->checkpoint ? kCheckpointPrefix : ""));
  return ArraySource(std::move(contents));
}

const fs::path& ArraySource::path() const noexcept {
  return contents_->path;
}

const std::vector<ArrayHeader>& ArraySource::arrays() const noexcept {
  return contents_->arrays;
}

void ArraySource::read(std::span<const Read> reads) const {
  if (contents_->checkpoint)
    contents_->read_checkpoint(reads);
  else
    contents_->read_file(reads);
}

}  // namespace ddp::ckpt
