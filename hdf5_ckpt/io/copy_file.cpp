// SPDX-License-Identifier: Apache-2.0
// Copies in blocks, in several threads: while one block is read, others are being written.

#include "hdf5_ckpt/io/copy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/aligned_buffer.h"
#include "hdf5_ckpt/io/parallel_for.h"
#include "hdf5_ckpt/io/posix_read.h"
#include "hdf5_ckpt/io/source_file.h"
#include "hdf5_ckpt/io/target_file.h"

namespace ddp::ckpt {
namespace {

constexpr std::size_t kBlock = 4 << 20;

}  // namespace

void copy_file_durably(FileOps& ops, const std::filesystem::path& from,
                       const std::filesystem::path& to, unsigned threads) {
  auto opened = open_regular_file(from);
  const std::uint64_t size = opened.size;
  auto around_cache = open_around_cache(opened.fd);
  SourceFile source(std::move(opened.fd), std::move(around_cache));
  TargetFile target(ops, to, true);
  target.reserve(size);
  std::vector<AlignedBuffer> buffers(std::max(1U, threads));
  parallel_for((size + kBlock - 1) / kBlock, threads, [&](std::size_t index, unsigned worker) {
    const std::uint64_t begin = index * kBlock;
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, size - begin));
    const auto piece = source.read(begin, length, {}, buffers[worker]);
    if (piece.code != 0)
      throw_read_error(fmt::format("'{}' cannot be read at offset {}: {}", from.string(), begin,
                                   std::generic_category().message(piece.code)),
                       piece.code);
    if (piece.bytes.size() != length)
      throw DamagedError(fmt::format("'{}' ends at offset {}, before its {} bytes", from.string(),
                                     begin + piece.bytes.size(), size));
    target.write(piece.bytes, begin);
  });
  target.sync();
  target.close();
}

}  // namespace ddp::ckpt
