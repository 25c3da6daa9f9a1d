// SPDX-License-Identifier: Apache-2.0
// The subset of the zip format that torch.save uses: stored, uncompressed entries, with or without
// checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/io/target_file.h"

namespace ddp::ckpt {

struct ZipEntry {
  std::uint64_t offset = 0;  // position of its bytes in the file
  std::uint64_t size = 0;
  std::uint32_t crc32 = 0;
  bool compressed = false;
};
using ZipEntries = std::map<std::string, ZipEntry>;

// Returns the entries by name. All are inside the file and together no larger than it; otherwise
// throws DamagedError. Their CRC-32 is not checked.
ZipEntries parse_zip(std::span<const std::byte> file);

// Throws DamagedError naming the first entry whose bytes do not have their CRC-32. A file whose
// checksums are all zero was written without them.
void check_zip(std::span<const std::byte> file, const ZipEntries& entries);

// An entry to write.
struct ZipSource {
  std::string name;
  std::uint64_t size = 0;  // bytes
};

inline constexpr std::size_t kMaxPlainEntries = 65534;  // without zip64

// Writes the sources as a zip into a new, empty file; the bytes of each entry start at a multiple
// of 64. Throws Error, before anything is written, if it would exceed 4 GiB or
// kMaxPlainEntries, which would require zip64.
void write_zip(TargetFile& file, std::span<const ZipSource> sources, const GiveBytes& give);

}  // namespace ddp::ckpt
