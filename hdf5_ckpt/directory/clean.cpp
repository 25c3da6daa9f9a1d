// SPDX-License-Identifier: Apache-2.0
// Recognizes leftovers by their names alone.

#include "hdf5_ckpt/directory/clean.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/file_ops.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/io/directories.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

std::optional<Leftover::Kind> kind_of(const std::string& name) {
  if (name.starts_with(std::string(kSuperseded) + "-step-")) return Leftover::Kind::set_aside;
  if (name.starts_with(std::string(kDamaged) + "-step-")) return Leftover::Kind::replaced;
  if (owner_of_leftover(name)) return Leftover::Kind::unfinished;
  return std::nullopt;
}

// Adds the size of `path` itself and its time of writing.
void measure(const fs::path& path, Leftover& leftover, std::time_t& newest) {
  struct stat status = {};
  if (system_file_ops().lstat(path.c_str(), &status) != 0) return;
  if (S_ISREG(status.st_mode)) leftover.bytes += static_cast<std::uint64_t>(status.st_size);
  newest = std::max(newest, status.st_mtime);
}

Leftover measured(const fs::path& path, Leftover::Kind kind) {
  Leftover leftover{kind, path, 0, {}};
  std::time_t newest = 0;
  measure(path, leftover, newest);
  struct stat status = {};
  const bool directory =
      system_file_ops().lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  if (directory)
    for (const std::string& name : names_in_directory(system_file_ops(), path))
      measure(path / name, leftover, newest);
  leftover.age = std::chrono::seconds(std::max<std::time_t>(0, std::time(nullptr) - newest));
  return leftover;
}

}  // namespace

std::vector<Leftover> leftovers_in(const fs::path& root) {
  std::vector<Leftover> found;
  for (const fs::path& directory : with_best_directory(root))
    for (const std::string& name : names_in_directory(system_file_ops(), directory))
      if (const auto kind = kind_of(name)) found.push_back(measured(directory / name, *kind));
  std::sort(found.begin(), found.end(),
            [](const Leftover& a, const Leftover& b) { return a.path < b.path; });
  return found;
}

void remove_leftover(const Leftover& leftover) {
  if (const int code = remove_directory(system_file_ops(), leftover.path); code != 0)
    throw IoError("remove", leftover.path, code);
}

}  // namespace ddp::ckpt
