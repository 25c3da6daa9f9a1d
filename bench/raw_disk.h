// SPDX-License-Identifier: Apache-2.0
// Plain disk access without any file format: the limit for a checkpoint.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace ddp::bench {

// Writes the bytes in blocks of 4 MiB with `threads` threads, with O_DIRECT or through the page
// cache, and makes the file and its directory entry durable. Address and length of `bytes` must be
// multiples of 4096. Throws RuntimeError.
void write_raw(const std::filesystem::path& file, std::span<const std::byte> bytes,
               unsigned threads, bool direct);

// Reads the file into the bytes, with O_DIRECT where the file system supports it.
void read_raw(const std::filesystem::path& file, std::span<std::byte> bytes, unsigned threads);

// Drops the file from the page cache, so that the next read comes from the disk.
void drop_pages(const std::filesystem::path& file);

}  // namespace ddp::bench
