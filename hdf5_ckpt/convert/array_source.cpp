// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/array_source.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "hdf5_ckpt/convert/checkpoint_arrays.h"
#include "hdf5_ckpt/convert/foreign_file.h"
#include "hdf5_ckpt/convert/name_prefix.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

// An array of the source under its own name.
struct Named {
  ArrayHeader header;
  std::size_t index;
};

std::vector<Named> with_prefix(const std::vector<Named>& all, const std::string& prefix,
                               const fs::path& path, const std::string& reason) {
  std::vector<std::string_view> names;
  names.reserve(all.size());
  for (const auto& array : all) names.push_back(array.header.name);
  std::vector<Named> chosen;
  for (auto& [name, place] : without_prefix(prefix, names)) {
    const Named& array = all[place];
    chosen.push_back({{std::move(name), array.header.dtype, array.header.shape}, array.index});
  }
  if (!chosen.empty()) return chosen;
  if (all.empty()) throw UsageError(fmt::format("'{}' holds no arrays{}", path.string(), reason));
  if (asks_for_average(prefix))
    throw UsageError(fmt::format("'{}' has no average of the weights, which a run with --ema saves",
                                 path.string()));
  throw UsageError(
      fmt::format("'{}' has no array whose name starts with '{}'; one of its names is '{}'",
                  path.string(), prefix, all.front().header.name));
}

// The checkpoint itself, or the newest whole one of a directory of checkpoints; nullopt if there is
// none.
std::optional<Checkpoint> open_checkpoint(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path / kManifestName, ignored)) return Checkpoint::open(path);
  auto newest = CheckpointDirectory(path).newest_verified();
  return newest ? std::optional(std::move(newest->checkpoint)) : std::nullopt;
}

}  // namespace

struct ArraySource::Contents {
  fs::path path;
  std::vector<ArrayHeader> arrays;
  std::vector<std::size_t> indices;  // of `arrays` in the checkpoint or the file
  std::optional<Checkpoint> checkpoint;
  bool leaves_average = false;
  // Without a checkpoint:
  std::optional<ForeignFile> file;

  void keep(const std::vector<Named>& all, const std::string& prefix) {
    auto chosen = with_prefix(all, prefix, path, reason_without_arrays());
    for (auto& array : chosen) {
      arrays.push_back(std::move(array.header));
      indices.push_back(array.index);
    }
  }

  std::string reason_without_arrays() const {
    return file ? ": " + omissions_text(file->contents()) : std::string();
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
      const ExternalArray& array = file->contents().arrays[indices[read.array]];
      copy_elements(file->bytes(array), array, 0, read.out);
    }
  }
};

ArraySource::ArraySource(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
ArraySource::ArraySource(ArraySource&&) noexcept = default;
ArraySource& ArraySource::operator=(ArraySource&&) noexcept = default;
ArraySource::~ArraySource() = default;

ArraySource ArraySource::open(const fs::path& path, const std::optional<std::string>& prefix) {
  std::error_code error;
  auto contents = std::make_unique<Contents>();
  contents->path = path;
  std::vector<Named> all;
  if (fs::is_directory(path, error)) contents->checkpoint = open_checkpoint(path);
  const std::string wanted = prefix.value_or(contents->checkpoint ? kModelPrefix : "");
  if (contents->checkpoint) {
    contents->path = contents->checkpoint->path();
    contents->leaves_average = leaves_the_average(*contents->checkpoint, wanted);
    for (auto& [name, index] : checkpoint_arrays(*contents->checkpoint, wanted)) {
      const StoredArray& array = contents->checkpoint->arrays()[index];
      all.push_back({{std::move(name), array.dtype, array.shape}, index});
    }
  } else {
    contents->file = ForeignFile::open(path, PlainHdf5::refused);
    contents->path = contents->file->path();
    for (const auto& array : contents->file->contents().arrays)
      all.push_back({{array.name, array.dtype, array.shape}, all.size()});
  }
  contents->keep(all, wanted);
  return ArraySource(std::move(contents));
}

const fs::path& ArraySource::path() const noexcept {
  return contents_->path;
}

const std::vector<ArrayHeader>& ArraySource::arrays() const noexcept {
  return contents_->arrays;
}

bool ArraySource::leaves_average() const noexcept {
  return contents_->leaves_average;
}

std::span<const Omission> ArraySource::unreadable() const noexcept {
  if (!contents_->file) return {};
  return contents_->file->contents().unreadable;
}

void ArraySource::read(std::span<const Read> reads) const {
  if (contents_->checkpoint)
    contents_->read_checkpoint(reads);
  else
    contents_->read_file(reads);
}

}  // namespace ddp::ckpt
