// SPDX-License-Identifier: Apache-2.0
// Writes one HDF5 file. Note [Write path] in the header gives the order and the reasons.

#include "hdf5_ckpt/write/writer.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "hdf5_ckpt/core/blocks.h"
#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/extents.h"
#include "hdf5_ckpt/core/names.h"
#include "hdf5_ckpt/core/parts.h"
#include "hdf5_ckpt/io/aligned_buffer.h"
#include "hdf5_ckpt/io/parallel_for.h"
#include "hdf5_ckpt/io/target_file.h"
#include "hdf5_ckpt/write/skeleton.h"
#include "hdf5_ckpt/write/small_arrays.h"

namespace ddp::ckpt {
namespace {

constexpr unsigned kMaxThreads = 64;
constexpr std::size_t kMaxAttributes = 64;
constexpr std::size_t kMaxAttributeBytes = 4096;
constexpr std::uint64_t kCopyBytes = 1ULL << 20;
// "\x89HDF\r\n\x1a\n": without these bytes, no tool accepts the file as HDF5. Written last and
// alone, so that even a torn write of them cannot make an unfinished file look finished.
constexpr std::uint64_t kSignatureBytes = 8;

using SortedArrays = std::vector<const ArrayView*>;

void check_array(const ArrayView& array) {
  if (const std::string problem = array_name_problem(array.name); !problem.empty())
    throw Error(fmt::format("the array name '{}' {}", array.name, problem));
  if (array.shape.size() > kMaxRank)
    throw Error(fmt::format("array '{}' has {} dimensions, but HDF5 allows only {}", array.name,
                            array.shape.size(), kMaxRank));
  const auto bytes = byte_count(array.dtype, array.shape);
  if (!bytes || *bytes != array.bytes.size())
    throw Error(fmt::format("array '{}' of {} {} has {} bytes of data", array.name,
                            dtype_name(array.dtype), shape_text(array.shape), array.bytes.size()));
  if (!array.part) return;
  if (const std::string problem = part_problem(array.dtype, array.shape, *array.part);
      !problem.empty())
    throw Error(fmt::format("the part of array '{}' {}", array.name, problem));
}

SortedArrays sorted_and_checked(std::span<const ArrayView> arrays) {
  if (arrays.size() > kMaxArrays)
    throw Error(fmt::format("{} arrays are more than the {} that one checkpoint may hold",
                            arrays.size(), kMaxArrays));
  SortedArrays sorted;
  for (const ArrayView& array : arrays) {
    check_array(array);
    sorted.push_back(&array);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const ArrayView* a, const ArrayView* b) { return a->name < b->name; });
  std::vector<std::string_view> names;
  for (const ArrayView* array : sorted) names.emplace_back(array->name);
  if (const std::string problem = name_set_problem(names); !problem.empty()) throw Error(problem);
  return sorted;
}

void check_attributes(const nlohmann::json& attributes) {
  if (!attributes.is_object() || attributes.size() > kMaxAttributes)
    throw Error(fmt::format("a file's attributes must be a JSON object of at most {} entries",
                            kMaxAttributes));
  for (const auto& [key, value] : attributes.items()) {
    const bool too_long =
        value.is_string() && value.get_ref<const std::string&>().size() > kMaxAttributeBytes;
    if (key.empty() || !label_problem(key).empty() || value.is_structured() || value.is_null() ||
        too_long)
      throw Error(
          fmt::format("attribute '{}' must be a string of at most {} bytes, a number or a "
                      "boolean",
                      key, kMaxAttributeBytes));
  }
}

void check_options(const std::filesystem::path& path, const WriteOptions& options) {
  const std::string name = path.filename();
  if (const std::string problem = file_name_problem(name); !problem.empty())
    throw Error(fmt::format("the file name '{}' {}", name, problem));
  if (options.block_bytes < kMinBlockBytes || options.block_bytes > kMaxBlockBytes ||
      options.block_bytes % kAlignment != 0)
    throw Error(fmt::format("block_bytes is {}, and must be a multiple of {} up to {}",
                            options.block_bytes, kAlignment, kMaxBlockBytes));
}

// Checks the limit first, because exceeding `ulimit -f` kills the process with SIGXFSZ.
void check_file_size_limit(const std::filesystem::path& path, std::uint64_t bytes) {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return;
  if (limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
    throw IoError(fmt::format("write up to {} bytes, with a file size limit of {}, to", bytes,
                              limit.rlim_cur),
                  path, EFBIG);
}

// Returns the caller's bytes, or an aligned copy for the disk. Memory from an allocator is rarely
// aligned, and a copy costs less than a write through the page cache.
std::span<const std::byte> aligned(std::span<const std::byte> bytes, AlignedBuffer& buffer) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % kAlignment == 0) return bytes;
  const std::span<std::byte> copy = buffer.get(bytes.size());
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

// Writes every array at its offset and returns the checksums of all blocks of each.
std::vector<std::vector<std::uint32_t>> write_arrays(const SortedArrays& arrays,
                                                     const SmallArrays& small,
                                                     std::span<const std::uint64_t> offsets,
                                                     TargetFile& target,
                                                     const WriteOptions& options) {
  std::vector<std::uint64_t> lengths;
  std::vector<std::vector<std::uint32_t>> crcs;
  std::uint64_t bytes_in_all = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::uint64_t length = arrays[i]->bytes.size();
    const auto& known = small.crcs()[i];
    lengths.push_back(known ? 0 : length);
    // A small array is one block.
    crcs.emplace_back(block_count(length, options.block_bytes), known.value_or(0));
    bytes_in_all += lengths.back();
  }
  small.write(offsets, target);
  const std::vector<Block> blocks = blocks_of(lengths, options.block_bytes);
  const unsigned threads = std::clamp(options.threads, 1U, kMaxThreads);
  std::vector<AlignedBuffer> buffers(threads);
  Meter meter(options.progress, bytes_in_all);
  parallel_for(blocks.size(), threads, [&](std::size_t index, unsigned worker) {
    const auto [array, block] = blocks[index];
    // Small arrays have unaligned offsets, where an aligned copy would not make the write direct.
    const bool may_go_direct = target.is_direct() && lengths[array] >= kAlignedArrayBytes;
    auto bytes = block_of(arrays[array]->bytes, block, options.block_bytes);
    if (may_go_direct) bytes = aligned(bytes, buffers[worker]);
    crcs[array][block] = crc32c(bytes);
    target.write(bytes, offsets[array] + block * options.block_bytes);
    meter.add(bytes.size());
  });
  return crcs;
}

std::vector<ArrayInfo> describe(const SortedArrays& arrays, std::span<const std::uint64_t> offsets,
                                std::vector<std::vector<std::uint32_t>> crcs,
                                const std::string& file, std::uint64_t block_bytes) {
  std::vector<ArrayInfo> infos;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const ArrayView& array = *arrays[i];
    const std::uint32_t crc = combine_blocks(crcs[i], array.bytes.size(), block_bytes);
    infos.push_back({array.name, array.dtype, array.shape, file, offsets[i], array.bytes.size(),
                     crc, std::move(crcs[i]), array.part});
  }
  return infos;
}

// Returns the bytes of the file that belong to HDF5 and not to an array, in pieces of at most
// kCopyBytes. The signature is a separate piece.
std::vector<Extent> metadata_pieces(const std::vector<ArrayInfo>& arrays, std::uint64_t size) {
  std::vector<Extent> claimed;
  for (const ArrayInfo& array : arrays)
    if (array.length != 0) claimed.push_back({array.offset, array.length});
  std::sort(claimed.begin(), claimed.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::vector<Extent> pieces;
  for (const Extent& gap : gaps_between(claimed, size))
    for (std::uint64_t at = gap.offset; at < gap.end();) {
      const std::uint64_t most = at == 0 ? kSignatureBytes : kCopyBytes;
      const std::uint64_t length = std::min(most, gap.end() - at);
      pieces.push_back({at, length});
      at += length;
    }
  return pieces;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Copies HDF5's own bytes, makes everything durable, and only then writes the signature. Returns
// the checksum of the copied bytes.
std::uint32_t write_metadata_and_sync(const Skeleton& skeleton, const std::vector<Extent>& pieces,
                                      TargetFile& target) {
  std::vector<std::byte> signature;
  std::vector<std::byte> piece;
  std::uint32_t crc = 0;
  for (const Extent& extent : pieces) {
    piece.resize(extent.length);
    skeleton.read(piece, extent.offset);
    crc = crc32c(piece, crc);
    if (extent.offset == 0)
      signature = piece;
    else if (!all_zero(piece))  // the reserved space already contains zeros
      target.write(piece, extent.offset);
  }
  target.sync();
  target.write(signature, 0);
  target.sync();
  return crc;
}

}  // namespace

FileRecord write_hdf5_file(const std::filesystem::path& path, std::span<const ArrayView> arrays,
                           const nlohmann::json& attributes, const WriteOptions& options,
                           FileOps& ops) {
  check_options(path, options);
  check_attributes(attributes);
  const SortedArrays sorted = sorted_and_checked(arrays);
  check_file_size_limit(path, file_size_bound(sorted, attributes));

  const SmallArrays small(sorted);
  Skeleton skeleton(sorted, small.crcs(), attributes, options.scratch_dir);
  TargetFile target(ops, path, options.direct_io);
  target.reserve(skeleton.size());
  auto block_crcs = write_arrays(sorted, small, skeleton.offsets(), target, options);

  FileRecord record;
  record.arrays = describe(sorted, skeleton.offsets(), std::move(block_crcs), path.filename(),
                           options.block_bytes);
  std::vector<std::uint32_t> crcs;
  for (const ArrayInfo& array : record.arrays) crcs.push_back(array.crc32c);
  const std::uint64_t reserved = skeleton.size();
  skeleton.finish(crcs);
  if (skeleton.size() != reserved) target.truncate(skeleton.size());
  const std::uint32_t metadata_crc =
      write_metadata_and_sync(skeleton, metadata_pieces(record.arrays, skeleton.size()), target);
  target.close();
  record.file = {path.filename(), skeleton.size(), options.block_bytes, metadata_crc};
  return record;
}

}  // namespace ddp::ckpt
