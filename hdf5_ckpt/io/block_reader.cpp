// SPDX-License-Identifier: Apache-2.0
// Reads a block directly into the target if its bytes are contiguous there and the disk allows it.
// Other blocks pass through a buffer, and are verified before they leave it.

#include "hdf5_ckpt/io/block_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "hdf5_ckpt/core/crc32c.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/parallel_for.h"
#include "hdf5_ckpt/io/posix_read.h"
#include "hdf5_ckpt/io/streaming_copy.h"

namespace ddp::ckpt {
namespace {

constexpr unsigned kMaxReaders = 64;

// Reads bytes [begin, end) of the array, which form a block, and compares their checksum. Returns
// their location: `place`, if it is not empty and could be read into directly, otherwise `passage`.
std::span<const std::byte> read_block(SourceFile& file, const ArrayInfo& array, std::uint64_t begin,
                                      std::uint64_t end, std::uint64_t block_bytes,
                                      std::span<std::byte> place, AlignedBuffer& passage) {
  const auto [bytes, code] = file.read(array.offset + begin, end - begin, place, passage);
  const auto where = [&] {
    return fmt::format("array '{}': bytes {} to {} (in '{}' at offset {})", array.name, begin,
                       end - 1, array.file, array.offset + begin);
  };
  if (code != 0)
    throw_read_error(
        fmt::format("{} cannot be read: {}", where(), std::generic_category().message(code)), code);
  if (bytes.size() != end - begin)
    throw DamagedError(fmt::format("{} are missing: the file is truncated", where()));
  const std::uint32_t crc = crc32c(bytes);
  const std::uint32_t expected = array.block_crc32c[begin / block_bytes];
  if (crc != expected)
    throw DamagedError(fmt::format("{} are damaged: crc32c is {:08x} and should be {:08x}", where(),
                                   crc, expected));
  return bytes;
}

// Returns the place in the target for the whole block if its bytes are contiguous there too;
// otherwise empty.
std::span<std::byte> place_of(const Wanted& wanted, std::uint64_t begin, std::uint64_t end) {
  if (!wanted.overlap) return {};
  const Overlap::Run run = wanted.overlap->run(wanted.overlap->first_run_beyond(begin));
  if (run.from > begin || run.from + run.length < end) return {};
  return wanted.target.subspan(run.to + (begin - run.from), end - begin);
}

// Copies the requested bytes of the block [begin, begin + block.size()).
void scatter(const Wanted& wanted, std::uint64_t begin, std::span<const std::byte> block) {
  const Overlap& overlap = *wanted.overlap;
  const std::uint64_t end = begin + block.size();
  for (std::uint64_t i = overlap.first_run_beyond(begin); i < overlap.runs(); ++i) {
    const Overlap::Run run = overlap.run(i);
    if (run.from >= end) break;
    const std::uint64_t low = std::max(run.from, begin);
    const std::uint64_t high = std::min(run.from + run.length, end);
    streaming_copy(wanted.target.data() + run.to + (low - run.from),
                   block.subspan(low - begin, high - low));
  }
}

}  // namespace

BlockList::BlockList(std::vector<Wanted> wanted, std::uint64_t block_bytes)
    : wanted_(std::move(wanted)), block_bytes_(block_bytes) {
  std::sort(wanted_.begin(), wanted_.end(),
            [](const Wanted& a, const Wanted& b) { return a.info->offset < b.info->offset; });
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const auto& [info, overlap, target] = wanted_[i];
    for (std::uint64_t begin = 0; begin < info->length; begin += block_bytes) {
      const std::uint64_t end = std::min(info->length, begin + block_bytes);
      if (overlap && !overlap->touches(begin, end)) continue;
      entries_.push_back({i, begin, end});
      bytes_ += end - begin;
    }
  }
}

void read_blocks(SourceFile& file, const BlockList& list, unsigned threads, Meter& meter) {
  threads = std::clamp(threads, 1U, kMaxReaders);
  std::vector<AlignedBuffer> passages(threads);
  parallel_for(list.entries().size(), threads, [&](std::size_t index, unsigned worker) {
    const BlockList::Entry& entry = list.entries()[index];
    const Wanted& wanted = list.wanted(entry);
    const std::span<std::byte> place = place_of(wanted, entry.begin, entry.end);
    const auto bytes = read_block(file, *wanted.info, entry.begin, entry.end, list.block_bytes(),
                                  place, passages[worker]);
    if (wanted.overlap && bytes.data() != place.data()) scatter(wanted, entry.begin, bytes);
    meter.add(bytes.size());
  });
}

}  // namespace ddp::ckpt
