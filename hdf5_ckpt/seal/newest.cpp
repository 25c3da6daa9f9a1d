// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/seal/newest.h"

#include <fmt/format.h>

#include <chrono>
#include <system_error>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/io/retry.h"
#include "hdf5_ckpt/read/checkpoint.h"
#include "hdf5_ckpt/seal/name_order.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

// A link such as "latest", which names another entry. One that leads elsewhere is an entry itself.
bool is_second_name(const fs::directory_entry& entry) {
  if (!entry.is_symlink()) return false;
  return real_path(entry.path()).parent_path() == real_path(entry.path().parent_path());
}

// Whether its name says so, or a seal.
bool is_checkpoint(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code unknown;
  const bool is_directory = entry.is_directory(unknown);
  if (name.starts_with('.') || is_seal_of_file(name) || is_second_name(entry)) return false;
  if (!is_directory && !entry.is_regular_file(unknown)) return false;
  return is_checkpoint_name(name, is_directory) || is_sealed(entry.path());
}

// That of its files if it is sealed, else its own.
std::int64_t time_of(const fs::path& checkpoint) {
  if (is_sealed(checkpoint)) {
    try {
      return read_seal(checkpoint).written_ns;
    } catch (const Error&) {  // verifying it says why
    }
  }
  std::error_code gone;
  const auto changed = fs::last_write_time(checkpoint, gone);
  const auto unix_time = std::chrono::file_clock::to_sys(changed).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(unix_time).count();
}

void verify(const fs::path& path, const SealOptions& options) {
  if (!is_of_this_project(path)) {
    verify_sealed(path, options);
    return;
  }
  const Checkpoint checkpoint = Checkpoint::open(path);
  if (path.filename() != step_directory_name(checkpoint.manifest().step))
    throw DamagedError(
        fmt::format("'{}': its manifest says step {}", path.string(), checkpoint.manifest().step));
  checkpoint.verify({options.threads, options.progress});
}

// Nothing to resume from is no error, so that a wrong name would start a job afresh.
void refuse_no_directory(const fs::path& root) {
  if (root.empty()) throw Error("the name of the directory is empty");
  if (const std::string link = dangling_link_text(root); !link.empty()) throw Error(link);
  if (fs::exists(root) && !fs::is_directory(root))
    throw Error(
        fmt::format("'{}' is a file: name the directory of the checkpoints", root.string()));
  if (is_sealed(root) || fs::exists(root / kManifestName))
    throw Error(fmt::format("'{}' is a checkpoint itself: name the directory that holds it",
                            root.string()));
}

constexpr int kDepth = 3;  // lightning_logs/version_0/checkpoints/last.ckpt.seal.json

// For the same reason.
void refuse_seals_below(const fs::path& root, const fs::path& directory, int depth) {
  std::error_code refused;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, refused)) {
    const std::string name = entry.path().filename().string();
    if (name == kSealName || is_seal_of_file(name))
      throw Error(fmt::format("the checkpoints are not in '{}' itself: name '{}'", root.string(),
                              (name == kSealName ? directory.parent_path() : directory).string()));
    if (depth > 1 && entry.is_directory(refused) && !entry.is_symlink(refused))
      refuse_seals_below(root, entry.path(), depth - 1);
  }
}

}  // namespace

bool is_of_this_project(const fs::path& checkpoint) {
  std::error_code unknown;
  return step_of_directory(checkpoint.filename().string()) && !is_sealed(checkpoint) &&
         fs::exists(checkpoint / kManifestName, unknown);
}

std::vector<fs::path> unsorted_checkpoints(const fs::path& root) {
  std::vector<fs::path> found;
  for (const std::string& name : names_in_directory(system_file_ops(), root))
    if (is_checkpoint(fs::directory_entry(root / name))) found.push_back(root / name);
  return found;
}

std::vector<fs::path> checkpoints_in(const fs::path& root) {
  std::vector<NamedCheckpoint> found;
  for (const fs::path& path : unsorted_checkpoints(root))
    found.push_back({path.filename().string(), time_of(path)});
  sort_newest_first(found);
  std::vector<fs::path> paths;
  paths.reserve(found.size());
  for (const NamedCheckpoint& checkpoint : found) paths.push_back(root / checkpoint.name);
  return paths;
}

std::optional<fs::path> newest_whole(const fs::path& root, const SealOptions& options,
                                     const std::function<void(const std::string&)>& pass_over) {
  refuse_no_directory(root);
  if (!fs::exists(root)) return std::nullopt;
  const std::vector<fs::path> checkpoints = checkpoints_in(root);
  for (const fs::path& path : checkpoints) {
    try {
      with_retries(RetryPolicy{}.unit, [&] { verify(path, options); });
      return path;
    } catch (const DamagedError& error) {
      pass_over(error.what());
    }
  }
  if (checkpoints.empty()) {
    refuse_seals_below(root, root, kDepth);
    return std::nullopt;
  }
  throw Error(fmt::format(
      "no checkpoint in '{}' is whole, of {}: seal one that you know to be complete, or move them "
      "away to start afresh",
      root.string(), checkpoints.size()));
}

}  // namespace ddp::ckpt
