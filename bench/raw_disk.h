// The disk without any format: the limit for a checkpoint.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace ddp::bench {

// Writes the bytes in blocks of 4 MiB by `threads` threads, with O_DIRECT or through the page
// cache, and makes them durable; the file and its name. `bytes` starts at a multiple of 4096 and is
// a multiple of it long. Throws RuntimeError.
void write_raw(const std::filesystem::path& file, std::span<const std::byte> bytes,
               unsigned threads, bool direct);

// Reads the file into the bytes with O_DIRECT, where the file system has it.
void read_raw(const std::filesystem::path& file, std::span<std::byte> bytes, unsigned threads);

// Removes what memory holds of the file, so that the next read comes from the disk.
void drop_pages(const std::filesystem::path& file);

}  // namespace ddp::bench
