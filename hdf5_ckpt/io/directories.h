// SPDX-License-Identifier: Apache-2.0
// Creating and removing directories and small files durably, through FileOps.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/core/file_ops.h"

namespace ddp::ckpt {

// Returns the absolute path of a directory in one spelling: without ".", ".." and a slash at the
// end.
std::filesystem::path absolute_directory(const std::filesystem::path& directory);

// Makes the entries of `directory` durable. Throws IoError.
void sync_directory(FileOps& ops, const std::filesystem::path& directory);

// Creates `directory` and its missing parents, each one durable in its parent. Throws IoError.
void make_directories(FileOps& ops, const std::filesystem::path& directory);

// Creates the file `path`, which must not exist, and makes its content durable; removes it if that
// fails. Throws IoError.
void write_durable_file(FileOps& ops, const std::filesystem::path& path, std::string_view text);

// Replaces `path`, or creates it: writes `draft` in the same directory and renames it. The entry is
// durable on return. Throws IoError, and leaves the old file.
void replace_durable_file(FileOps& ops, const std::filesystem::path& path,
                          const std::filesystem::path& draft, std::string_view text);

// Like write_durable_file, with the content in several consecutive pieces.
void write_durable_pieces(FileOps& ops, const std::filesystem::path& path,
                          std::span<const std::span<const std::byte>> pieces);

// Calls renameat2 so that it never replaces `to`. Returns 0 or the errno value, EEXIST if `to`
// exists. Use it only for directories: if the file system does not support the flag, a plain rename
// replaces at most an empty directory.
int rename_no_replace(FileOps& ops, const std::filesystem::path& from,
                      const std::filesystem::path& to);

// Returns the names in `directory`, unsorted; none if it does not exist. Throws IoError.
std::vector<std::string> names_in_directory(FileOps& ops, const std::filesystem::path& directory);

// True if the name exists, even as a dangling link. False if that cannot be determined, because the
// entry is not usable then.
bool is_there(FileOps& ops, const std::filesystem::path& path);

// Removes `directory` and the files in it. A directory that contains directories stays. Never
// follows a link: an entry that is a link, or becomes one, is unlinked itself. Returns the first
// errno value, or 0, also if the name does not exist.
int remove_directory(FileOps& ops, const std::filesystem::path& directory);

}  // namespace ddp::ckpt
