#pragma once
// Directories and small files made and removed durably, through FileOps.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/file_ops.h"

namespace ddp::ckpt {

// Makes the entries of `directory` durable. Throws IoError.
void sync_directory(FileOps& ops, const std::filesystem::path& directory);

// Creates `directory` and what is missing above it, each one durable in its parent. Throws IoError.
void make_directories(FileOps& ops, const std::filesystem::path& directory);

// Creates the file `path`, which must not exist, and makes its content durable; removes it again
// if that fails. Throws IoError.
void write_durable_file(FileOps& ops, const std::filesystem::path& path, std::string_view text);

// The same with content in several pieces, one after the other.
void write_durable_pieces(FileOps& ops, const std::filesystem::path& path,
                          std::span<const std::span<const std::byte>> pieces);

// renameat2 that never replaces; 0 or the errno value, EEXIST if `to` is there. For directories:
// where the file system lacks the flag, a plain rename replaces at most an empty one.
int rename_no_replace(FileOps& ops, const std::filesystem::path& from,
                      const std::filesystem::path& to);

// The names in `directory`, in no order; none if it does not exist. Throws IoError.
std::vector<std::string> names_in_directory(FileOps& ops, const std::filesystem::path& directory);

// Whether there is something of that name, be it a link to nothing. If that cannot be found out,
// there is nothing that could be used.
bool is_there(FileOps& ops, const std::filesystem::path& path);

// Removes `directory` and the files in it. It holds no directories; one that does is left. Never
// follows a link: what is none itself, or becomes one, is removed as the file that it is. Returns
// 0, if there is nothing of that name too, or the first errno value.
int remove_directory(FileOps& ops, const std::filesystem::path& directory);

}  // namespace ddp::ckpt
