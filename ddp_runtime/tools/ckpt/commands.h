// SPDX-License-Identifier: Apache-2.0
// The commands of ddp-ckpt. Each prints to standard output and returns the exit status: 0 if all is
// well, 1 if something is damaged or different. They throw Error if there is nothing to work on.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace ddp::ckpt::tool {

struct Output {
  bool json = false;
  unsigned threads = 2;
};

// Lists the checkpoints of a directory, one per line; with `verify`, after reading every byte.
int run_ls(const std::filesystem::path& root, bool verify, const Output& output);

// Shows the contents of one checkpoint.
int run_show(const std::filesystem::path& path, const Output& output);

// Verifies every byte of one checkpoint, or of all checkpoints in a directory.
int run_verify(const std::filesystem::path& path, const Output& output);

// Makes view.h5 in a checkpoint and prints its path.
int run_view(const std::filesystem::path& path);

struct Cleaning {
  bool dry_run = false;
  bool set_aside = false;  // also removes what was set aside: whole checkpoints and damaged ones
  std::chrono::seconds older_than{0};
};

// Removes what takes space in a directory but is not a checkpoint to resume from.
int run_clean(const std::filesystem::path& root, const Cleaning& cleaning);

// Sets aside all checkpoints of the directory of `path` that are later than `path`.
int run_rollback(const std::filesystem::path& path);

// Reports how two checkpoints differ.
int run_diff(const std::filesystem::path& a, const std::filesystem::path& b, const Output& output);

// Converts a checkpoint to a .safetensors or .pt file (arrays whose names start with `prefix`,
// which is removed), or such a file to a checkpoint of step 0 in the directory `to` (`prefix` is
// added to each name).
int run_convert(const std::filesystem::path& from, const std::filesystem::path& to,
                const std::string& prefix, const Output& output);

}  // namespace ddp::ckpt::tool
