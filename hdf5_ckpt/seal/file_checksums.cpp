// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/seal/file_checksums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <system_error>

#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/aligned_buffer.h"
#include "hdf5_ckpt/io/parallel_for.h"
#include "hdf5_ckpt/io/posix_read.h"
#include "hdf5_ckpt/io/source_file.h"

namespace ddp::ckpt {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{64} << 20;  // of a file, for one thread
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;   // in memory

struct Block {
  std::size_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint32_t crc32c = 0;
};

std::vector<Block> blocks_of(std::span<const FileToRead> files) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::uint64_t at = 0; at < files[i].bytes; at += kBlockBytes)
      blocks.push_back({i, at, std::min(at + kBlockBytes, files[i].bytes)});
  return blocks;
}

SourceFile open_file(const FileToRead& file, ReadFrom from) {
  OpenedFile opened = open_named_file(file.path);
  if (from == ReadFrom::cache) return SourceFile(std::move(opened.fd));
  FileDescriptor around_cache = open_around_cache(opened.fd);
  return SourceFile(std::move(opened.fd), std::move(around_cache));
}

std::uint32_t read_block(const FileToRead& file, const Block& block, ReadFrom from,
                         AlignedBuffer& passage, Meter& meter) {
  SourceFile source = open_file(file, from);
  std::uint32_t crc = 0;
  for (std::uint64_t at = block.begin; at < block.end; at += kPieceBytes) {
    const std::uint64_t size = std::min(kPieceBytes, block.end - at);
    const SourceFile::Piece piece = source.read(at, size, {}, passage);
    if (piece.code != 0)
      throw_read_error(fmt::format("'{}' cannot be read: {}", file.path.string(),
                                   std::generic_category().message(piece.code)),
                       piece.code);
    if (piece.bytes.size() < size)
      throw DamagedError(
          fmt::format("'{}' is shorter than {} bytes", file.path.string(), file.bytes));
    crc = crc32c(piece.bytes, crc);
    meter.add(size);
  }
  return crc;
}

}  // namespace

std::vector<std::uint32_t> file_checksums(std::span<const FileToRead> files, ReadFrom from,
                                          unsigned threads, const Progress& progress) {
  std::vector<Block> blocks = blocks_of(files);
  std::uint64_t total = 0;
  for (const FileToRead& file : files) total += file.bytes;
  Meter meter(progress, total);
  std::vector<AlignedBuffer> passages(std::max(threads, 1U));
  parallel_for(blocks.size(), threads, [&](std::size_t i, unsigned worker) {
    blocks[i].crc32c = read_block(files[blocks[i].file], blocks[i], from, passages[worker], meter);
  });
  std::vector<std::uint32_t> sums(files.size(), 0);
  for (const Block& block : blocks) {
    std::uint32_t& sum = sums[block.file];
    sum = crc32c_combine(sum, block.crc32c, block.end - block.begin);
  }
  return sums;
}

}  // namespace ddp::ckpt
