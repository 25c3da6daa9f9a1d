#pragma once
// The part of the zip format that torch.save uses: entries that are stored, not compressed.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ddp::ckpt {

struct ZipEntry {
  std::uint64_t offset = 0;  // of its bytes in the file
  std::uint64_t size = 0;
};

// The entries by name, all inside the file and with the right CRC-32. Throws
// DamagedError.
std::map<std::string, ZipEntry> parse_zip(std::span<const std::byte> file);

struct ZipSource {
  std::string name;
  std::span<const std::byte> bytes;
};

// A zip file in pieces, to be written one after the other: headers of its own in `owned`, and
// between them the bytes of the sources, each of which starts at a multiple of 64. Throws Error if
// it would exceed 4 GiB.
struct ZipPieces {
  std::vector<std::vector<std::byte>> owned;
  std::vector<std::span<const std::byte>> all;
};
ZipPieces make_zip(std::span<const ZipSource> sources);

}  // namespace ddp::ckpt
