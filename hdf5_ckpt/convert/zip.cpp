// SPDX-License-Identifier: Apache-2.0
// Reads the central directory at the end of the file, as the format requires, including 64-bit
// sizes. The format is that of APPNOTE 6.3.

#include "hdf5_ckpt/convert/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t kLocal = 0x04034b50;
constexpr std::uint32_t kCentral = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kCentralBytes = 46;
constexpr std::uint64_t kAll32 = 0xFFFFFFFF;
constexpr std::size_t kMaxEntries = 2000000;
constexpr std::size_t kDataAlignment = 64;
constexpr std::uint64_t kExtraBytes = 4;  // before the contents of an extra field

template <typename Number>
Number number_at(Bytes file, std::uint64_t at) {
  Number value = 0;
  if (at > file.size() || file.size() - at < sizeof value)
    throw DamagedError("the zip file ends too early");
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

std::uint64_t end_record(Bytes file) {
  if (file.size() >= kEndBytes)
    for (std::uint64_t at = file.size() - kEndBytes;; --at) {
      if (number_at<std::uint32_t>(file, at) == kEnd) return at;
      if (at == 0 || file.size() - at > 65535 + kEndBytes) break;
    }
  throw DamagedError(fmt::format(
      "it begins as a zip file does, but has no end within its {} bytes: it was cut off; copy or "
      "download it again",
      file.size()));
}

struct Directory {
  std::uint64_t entries = 0;
  std::uint64_t offset = 0;
};

Directory directory_of(Bytes file) {
  const std::uint64_t end = end_record(file);
  Directory found{number_at<std::uint16_t>(file, end + 10),
                  number_at<std::uint32_t>(file, end + 16)};
  if (found.offset != kAll32 && found.entries != 0xFFFF) return found;
  if (end < kLocatorBytes) throw DamagedError("the zip file ends too early");
  const auto end64 = number_at<std::uint64_t>(file, end - kLocatorBytes + 8);
  if (number_at<std::uint32_t>(file, end64) != kEnd64)
    throw DamagedError("the zip file has no directory");
  return {number_at<std::uint64_t>(file, end64 + 32), number_at<std::uint64_t>(file, end64 + 48)};
}

// Replaces 32-bit values of all ones with the 64-bit values in the extra field, in order.
void widen(Bytes file, std::uint64_t extra, std::uint16_t length,
           std::span<std::uint64_t* const> values) {
  const std::uint64_t end = extra + length;
  while (extra + 4 <= end) {
    const auto kind = number_at<std::uint16_t>(file, extra);
    const auto size = number_at<std::uint16_t>(file, extra + 2);
    extra += 4;
    if (kind == 1) {
      for (std::uint64_t* value : values)
        if (*value == kAll32) {
          *value = number_at<std::uint64_t>(file, extra);
          extra += 8;
        }
      return;
    }
    extra += size;
  }
}

// Extends `crc`, the CRC-32 of the preceding bytes, by `bytes`.
uLong crc_of(Bytes bytes, uLong crc) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min<std::size_t>(bytes.size(), 1 << 30));
    crc =
        ::crc32(crc, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
    bytes = bytes.subspan(piece.size());
  }
  return crc;
}

void check_crc(Bytes bytes, std::uint32_t wanted, const std::string& name) {
  if (crc_of(bytes, 0) != wanted)
    throw DamagedError(fmt::format("'{:.100}' in the zip file is damaged", name));
}

// The name is in the directory and at the entry. If one of them were wrong, a record such as the
// byte order could disappear.
void require_header(Bytes file, std::uint64_t local, const std::string& name) {
  const bool whole = number_at<std::uint32_t>(file, local) == kLocal &&
                     number_at<std::uint16_t>(file, local + 26) == name.size() &&
                     file.size() - local - kLocalBytes >= name.size() &&
                     std::memcmp(file.data() + local + kLocalBytes, name.data(), name.size()) == 0;
  if (!whole) throw DamagedError(fmt::format("'{:.100}' in the zip file has no header", name));
}

void put(std::vector<std::byte>& to, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void put(std::vector<std::byte>& to, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// The position of a source's header, and the padding after its name that aligns its bytes.
struct ZippedFile {
  const ZipSource* source = nullptr;
  std::uint64_t header = 0;  // bytes from the start of the file
  std::uint64_t padding = 0;
  std::uint32_t crc = 0;

  std::uint64_t data() const {
    return header + kLocalBytes + source->name.size() + kExtraBytes + padding;
  }
};

std::vector<ZippedFile> place(std::span<const ZipSource> sources) {
  if (sources.size() > kMaxPlainEntries)
    throw Error(
        fmt::format("a plain zip file has room for {} files; write safetensors", kMaxPlainEntries));
  std::vector<ZippedFile> all;
  std::uint64_t at = 0;
  for (const ZipSource& source : sources) {
    ZippedFile placed{&source, at, 0, 0};
    placed.padding = (kDataAlignment - placed.data() % kDataAlignment) % kDataAlignment;
    if (source.size >= kAll32 || placed.data() + source.size >= kAll32)
      throw Error("the file would exceed 4 GiB, the limit of a plain zip file; write safetensors");
    at = placed.data() + source.size;
    all.push_back(placed);
  }
  return all;
}

// Writes the common fields of local and central headers.
void put_common(std::vector<std::byte>& to, const ZippedFile& placed, std::uint64_t extra) {
  put(to, 0, 2);       // flags
  put(to, 0, 2);       // stored
  put(to, 0, 2);       // time
  put(to, 0x0021, 2);  // January 1, 1980
  put(to, placed.crc, 4);
  put(to, placed.source->size, 4);
  put(to, placed.source->size, 4);
  put(to, placed.source->name.size(), 2);
  put(to, extra, 2);
}

std::vector<std::byte> local_header(const ZippedFile& placed) {
  std::vector<std::byte> header;
  put(header, kLocal, 4);
  put(header, 20, 2);
  put_common(header, placed, placed.padding + kExtraBytes);
  put(header, placed.source->name);
  put(header, 0x4246, 2);  // an extra field of an unused kind, for the alignment
  put(header, placed.padding, 2);
  header.resize(header.size() + placed.padding);
  return header;
}

std::vector<std::byte> central_directory(const std::vector<ZippedFile>& all, std::uint64_t at) {
  std::vector<std::byte> central;
  for (const ZippedFile& placed : all) {
    put(central, kCentral, 4);
    put(central, 20, 2);
    put(central, 20, 2);
    put_common(central, placed, 0);
    central.resize(central.size() + 10);  // no comment, disk 0, no attributes
    put(central, placed.header, 4);
    put(central, placed.source->name);
  }
  const std::uint64_t size = central.size();
  put(central, kEnd, 4);
  put(central, 0, 4);
  put(central, all.size(), 2);
  put(central, all.size(), 2);
  put(central, size, 4);
  put(central, at, 4);
  put(central, 0, 2);
  return central;
}

}  // namespace

ZipEntries parse_zip(Bytes file) {
  const Directory directory = directory_of(file);
  if (directory.entries > kMaxEntries) throw DamagedError("the zip file has too many entries");
  ZipEntries found;
  std::uint64_t at = directory.offset;
  std::uint64_t left = file.size();
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (number_at<std::uint32_t>(file, at) != kCentral)
      throw DamagedError("the directory of the zip file is damaged");
    std::uint64_t packed = number_at<std::uint32_t>(file, at + 20);
    std::uint64_t size = number_at<std::uint32_t>(file, at + 24);
    std::uint64_t local = number_at<std::uint32_t>(file, at + 42);
    const auto name_bytes = number_at<std::uint16_t>(file, at + 28);
    const auto extra_bytes = number_at<std::uint16_t>(file, at + 30);
    // Reading the byte after the name throws if the entry is incomplete.
    number_at<std::uint8_t>(file, at + kCentralBytes + name_bytes);
    const std::string name(reinterpret_cast<const char*>(file.data() + at + kCentralBytes),
                           name_bytes);
    const std::array<std::uint64_t*, 3> wide = {&size, &packed, &local};
    widen(file, at + kCentralBytes + name_bytes, extra_bytes, wide);
    const bool compressed = number_at<std::uint16_t>(file, at + 10) != 0 || packed != size;
    require_header(file, local, name);
    const std::uint64_t offset = local + kLocalBytes + number_at<std::uint16_t>(file, local + 26) +
                                 number_at<std::uint16_t>(file, local + 28);
    if (offset > file.size() || packed > file.size() - offset)
      throw DamagedError(fmt::format("'{:.100}' reaches beyond the end of the zip file", name));
    // Reject overlap early: many entries that share their bytes would take hours to read.
    if (packed > left) throw DamagedError("entries of the zip file overlap");
    left -= packed;
    const auto crc = number_at<std::uint32_t>(file, at + 16);
    if (!found.emplace(name, ZipEntry{offset, packed, crc, compressed}).second)
      throw DamagedError(fmt::format("'{:.100}' appears twice in the zip file", name));
    at += kCentralBytes + name_bytes + extra_bytes + number_at<std::uint16_t>(file, at + 32);
  }
  return found;
}

void check_zip(Bytes file, const ZipEntries& entries) {
  const bool without = std::all_of(entries.begin(), entries.end(),
                                   [](const auto& entry) { return entry.second.crc32 == 0; });
  if (without) return;
  for (const auto& [name, entry] : entries)
    if (!entry.compressed) check_crc(file.subspan(entry.offset, entry.size), entry.crc32, name);
}

void write_zip(TargetFile& file, std::span<const ZipSource> sources, const GiveBytes& give) {
  std::vector<ZippedFile> all = place(sources);
  std::uint64_t end = 0;
  for (ZippedFile& placed : all) {
    end = placed.data();
    uLong crc = 0;
    give(static_cast<std::size_t>(placed.source - sources.data()), [&](Bytes bytes) {
      crc = crc_of(bytes, crc);
      file.write(bytes, end);
      end += bytes.size();
    });
    placed.crc = static_cast<std::uint32_t>(crc);
    // The header is written last, because it contains the checksum.
    file.write(local_header(placed), placed.header);
  }
  file.write(central_directory(all, end), end);
}

}  // namespace ddp::ckpt
