// SPDX-License-Identifier: Apache-2.0
// Checks the names of arrays and files, which come from users' models and other programs' files and
// become HDF5 paths, file names and lines on a terminal.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddp::ckpt {

// Each function returns an empty string if the name is valid, otherwise the reason: "is longer than
// 1024 bytes".

// Checks an array's name: UTF-8 without control characters, components separated by single slashes,
// none of them "." or "..".
std::string array_name_problem(std::string_view name);

// Checks the name of an HDF5 file inside a checkpoint's directory.
std::string file_name_problem(std::string_view name);

// Checks a text for display: UTF-8 without control characters, at most kMaxNameBytes.
std::string label_problem(std::string_view text);

// Checks a whole set of `sorted` names: no duplicates, and none that is both an array and the group
// of another.
std::string name_set_problem(std::span<const std::string_view> sorted);

}  // namespace ddp::ckpt
