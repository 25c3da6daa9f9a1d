// SPDX-License-Identifier: Apache-2.0
// The rules for a manifest, checked both before one is written and after one is read. They make it
// safe to use offsets and lengths from a file of unknown origin.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "hdf5_ckpt/core/blocks.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/extents.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/core/names.h"
#include "hdf5_ckpt/core/parts.h"

namespace ddp::ckpt {
namespace {

using FileTable = std::unordered_map<std::string_view, const FileInfo*>;

template <typename... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  throw DamagedError(fmt::format(format, std::forward<Args>(args)...));
}

FileTable check_files(const std::vector<FileInfo>& files) {
  if (files.size() > kMaxFiles) reject("it lists {} files, more than {}", files.size(), kMaxFiles);
  FileTable table;
  for (const FileInfo& file : files) {
    if (const std::string problem = file_name_problem(file.name); !problem.empty())
      reject("a file name {}", problem);
    if (!table.emplace(file.name, &file).second) reject("file '{}' appears twice", file.name);
    if (file.block_bytes < kMinBlockBytes || file.block_bytes > kMaxBlockBytes)
      reject("file '{}' has blocks of {} bytes, not {} to {}", file.name, file.block_bytes,
             kMinBlockBytes, kMaxBlockBytes);
  }
  return table;
}

// Returns one span for each array, with its stored entries.
std::vector<std::span<const ArrayInfo>> by_name(const std::vector<ArrayInfo>& arrays) {
  std::vector<std::span<const ArrayInfo>> groups;
  for (auto first = arrays.begin(); first != arrays.end();) {
    const auto last = std::find_if(first, arrays.end(),
                                   [&](const ArrayInfo& a) { return a.name != first->name; });
    groups.emplace_back(first, last);
    first = last;
  }
  return groups;
}

void check_array_names(const std::vector<ArrayInfo>& arrays) {
  if (arrays.size() > kMaxArrays)
    reject("it lists {} arrays, more than {}", arrays.size(), kMaxArrays);
  std::vector<std::string_view> names;
  const ArrayInfo* before = nullptr;
  for (const ArrayInfo& array : arrays) {
    if (const std::string problem = array_name_problem(array.name); !problem.empty())
      reject("the name of array {} {}", &array - arrays.data(), problem);
    if (before != nullptr && array.name < before->name)
      reject("its arrays are not sorted by name: '{}' follows '{}'", array.name, before->name);
    const bool next_part = before != nullptr && before->name == array.name && before->part &&
                           array.part && stored_before(*before, array);
    if (!next_part) names.emplace_back(array.name);
    before = &array;
  }
  if (const std::string problem = name_set_problem(names); !problem.empty())
    throw DamagedError(problem);
}

void check_parts(const std::vector<ArrayInfo>& arrays) {
  std::uint64_t comparisons = 0;
  for (const auto& parts : by_name(arrays))
    if (parts.front().part)
      if (const std::string problem = cover_problem(parts, comparisons); !problem.empty())
        reject("array '{}' {}", parts.front().name, problem);
}

void check_array(const ArrayInfo& array, const FileTable& files) {
  const auto found = files.find(array.file);
  if (found == files.end()) reject("array '{}' is in a file that is not listed", array.name);
  const FileInfo& file = *found->second;
  if (array.shape.size() > kMaxRank)
    reject("array '{}' has {} dimensions, more than {}", array.name, array.shape.size(), kMaxRank);
  const auto bytes = byte_count(array.dtype, array.shape);
  if (!bytes) reject("array '{}' claims an impossible size", array.name);
  if (*bytes != array.length)
    reject("array '{}' has {} bytes, but {} {} takes {}", array.name, array.length,
           dtype_name(array.dtype), shape_text(array.shape), *bytes);
  if (array.length == 0 ? array.offset != 0
                        : array.length > file.size || array.offset > file.size - array.length)
    reject("array '{}' is at {} with {} bytes, outside of '{}', which has {} bytes", array.name,
           array.offset, array.length, file.name, file.size);
  if (array.block_crc32c.size() != block_count(array.length, file.block_bytes))
    reject("array '{}' has checksums of {} blocks, not {}", array.name, array.block_crc32c.size(),
           block_count(array.length, file.block_bytes));
  if (combine_blocks(array.block_crc32c, array.length, file.block_bytes) != array.crc32c)
    reject("the checksum of array '{}' is not that of its blocks", array.name);
  if (!array.part) return;
  if (const std::string problem = part_problem(array.dtype, array.shape, *array.part);
      !problem.empty())
    reject("a part of array '{}' {}", array.name, problem);
}

void check_overlaps(const std::vector<ArrayInfo>& arrays) {
  std::vector<const ArrayInfo*> order;
  for (const ArrayInfo& array : arrays)
    if (array.length != 0) order.push_back(&array);
  std::sort(order.begin(), order.end(), [](const ArrayInfo* a, const ArrayInfo* b) {
    return std::tie(a->file, a->offset) < std::tie(b->file, b->offset);
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const ArrayInfo& before = *order[i - 1];
    const ArrayInfo& after = *order[i];
    if (before.file == after.file && before.offset + before.length > after.offset)
      reject("arrays '{}' and '{}' overlap in '{}'", before.name, after.name, before.file);
  }
}

}  // namespace

bool stored_before(const ArrayInfo& a, const ArrayInfo& b) noexcept {
  if (const int order = a.name.compare(b.name); order != 0) return order < 0;
  if (!a.part || !b.part) return false;
  return std::tie(a.part->start, a.file) < std::tie(b.part->start, b.file);
}

void check_manifest(const Manifest& manifest) {
  if (const std::string problem = label_problem(manifest.run_id); !problem.empty())
    reject("run_id {}", problem);
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (manifest.step > kMax || manifest.epoch > kMax) reject("step or epoch exceeds 63 bits");
  if (manifest.world_size == 0 || manifest.world_size > kMax)
    reject("world_size is {}", manifest.world_size);
  const FileTable files = check_files(manifest.files);
  check_array_names(manifest.arrays);
  for (const ArrayInfo& array : manifest.arrays) check_array(array, files);
  check_overlaps(manifest.arrays);
  check_parts(manifest.arrays);
}

}  // namespace ddp::ckpt
