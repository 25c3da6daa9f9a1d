// SPDX-License-Identifier: Apache-2.0
// The commands of ddp-ckpt. Each prints to standard output and returns the exit status: 0 on
// success, 1 if data is damaged or different. They throw Error if the path has no
// checkpoint.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "hdf5_ckpt/seal/sealing.h"

namespace ddp::ckpt::tool {

struct Output {
  bool json = false;
  unsigned threads = 2;
};

// Lists the checkpoints of a directory, one per line. With `verify`, reads every byte of them
// first.
int run_ls(const std::filesystem::path& root, bool verify, const Output& output);

// Shows the contents of one checkpoint.
int run_show(const std::filesystem::path& path, const Output& output);

// Verifies every byte of one checkpoint, or of all checkpoints in a directory.
int run_verify(const std::filesystem::path& path, const Output& output);

// Seals checkpoints of other programs: their files, as they are now, are whole.
int run_seal(const std::vector<std::string>& paths, const Output& output);

// "sealed: 'out/checkpoint-500', 7 files, 1.4 GiB".
std::string sealed_text(const std::filesystem::path& path, const SealedContents& sealed);

// Seals what a job saves in a directory, when it has not changed for `quiet`; until SIGTERM.
int run_watch(const std::filesystem::path& root, std::chrono::seconds quiet, const Output& output);

// Prints the path of the newest whole checkpoint of a directory, of any program; nothing if there
// is none yet. Throws Error if there are some and none is whole.
int run_newest(const std::filesystem::path& root, const Output& output);

// Makes view.h5 in a checkpoint and prints its path.
int run_view(const std::filesystem::path& path);

struct Cleaning {
  bool dry_run = false;
  bool set_aside = false;  // also removes checkpoints that were set aside, complete or damaged
  std::chrono::seconds older_than{0};
};

// Removes from a directory the files that take space but belong to no checkpoint to resume from.
int run_clean(const std::filesystem::path& root, const Cleaning& cleaning);

// Sets aside all checkpoints of the directory of `path` that are later than `path`.
int run_rollback(const std::filesystem::path& path);

// Reports how two checkpoints differ.
int run_diff(const std::filesystem::path& a, const std::filesystem::path& b, const Output& output);

struct Conversion {
  std::string prefix;
  // Of the names in the file: "fc.*,*.bias". Without `only`, all but `skip`.
  std::string only;
  std::string skip;
  std::string map;  // from a checkpoint: the names that another program gives to the arrays
};

// Converts a checkpoint, a file of another program, an index with its files or a directory of them.
// To a .safetensors or .pt file: the arrays whose names start with the prefix, which is removed.
// From a file to the directory `to`, which becomes a checkpoint directory with step 0: adds the
// prefix to each name.
int run_convert(const std::filesystem::path& from, const std::filesystem::path& to,
                const Conversion& conversion, const Output& output);

// Lists what run_convert() would find, without converting it.
int run_inspect(const std::filesystem::path& path, const Output& output);

}  // namespace ddp::ckpt::tool
