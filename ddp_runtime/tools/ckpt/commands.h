#pragma once
// The commands of ddp-ckpt. Each prints to standard output and returns the exit status: 0 fine,
// 1 something is damaged or different. They throw Error where there is nothing to work on.

#include <chrono>
#include <filesystem>
#include <string>

namespace ddp::ckpt::tool {

struct Output {
  bool json = false;
  unsigned threads = 2;
};

// One line for each checkpoint of a directory; with `verify`, after reading every byte.
int run_ls(const std::filesystem::path& root, bool verify, const Output& output);

// What one checkpoint holds.
int run_show(const std::filesystem::path& path, const Output& output);

// Every byte of one checkpoint, or of all in a directory.
int run_verify(const std::filesystem::path& path, const Output& output);

// Makes view.h5 in a checkpoint and prints its path.
int run_view(const std::filesystem::path& path);

struct Cleaning {
  bool dry_run = false;
  bool set_aside = false;  // also what was set aside whole, and what was damaged
  std::chrono::seconds older_than{0};
};

// Removes what takes space in a directory and is no checkpoint to resume.
int run_clean(const std::filesystem::path& root, const Cleaning& cleaning);

// Sets aside all later checkpoints of the directory that `path` is in.
int run_rollback(const std::filesystem::path& path);

// How two checkpoints differ.
int run_diff(const std::filesystem::path& a, const std::filesystem::path& b, const Output& output);

// From a checkpoint to a .safetensors or .pt file (arrays whose names start with `prefix`, without
// it), or from such a file to a checkpoint of step 0 in the directory `to` (`prefix` before each).
int run_convert(const std::filesystem::path& from, const std::filesystem::path& to,
                const std::string& prefix, const Output& output);

}  // namespace ddp::ckpt::tool
