// SPDX-License-Identifier: Apache-2.0
// Looks at the directory, and then at each of its parents.

#include "hdf5_ckpt/directory/enclosure.h"

#include <algorithm>
#include <system_error>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using Kind = Enclosure::Kind;

bool there_is(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A manifest.json alone could belong to anything.
bool holds_manifest(const fs::path& path) {
  if (!there_is(path / kManifestName)) return false;
  if (step_of_directory(path.filename().string())) return true;
  try {
    static_cast<void>(Checkpoint::open(path));
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool holds_checkpoints(const fs::path& path) {
  try {
    const auto found = CheckpointDirectory(path).candidates();
    return std::any_of(found.begin(), found.end(),
                       [](const Candidate& one) { return holds_manifest(one.path); });
  } catch (const Error&) {
    return false;
  }
}

// Each save leaves the hint, so that a copied checkpoint does not make its place a run's.
bool is_of_a_run(const fs::path& path) {
  return there_is(path / kHintName) && holds_checkpoints(path);
}

bool has_best_name(const fs::path& path) {
  return path.filename() == kBestName;
}

bool keeps_best(const fs::path& path) {
  return has_best_name(path) && is_of_a_run(path.parent_path());
}

// The run to which a directory in it, `path`, belongs; empty if it is none's.
fs::path run_of(const fs::path& path) {
  if (keeps_best(path)) return path.parent_path();
  return is_of_a_run(path) ? path : fs::path();
}

}  // namespace

bool has_kept_name(const fs::path& path) {
  return has_best_name(path) || step_of_directory(path.filename().string());
}

Enclosure enclosure_of(const fs::path& directory) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(fs::absolute(directory, error), error);
  if (error) return {};  // creating it reports the error
  if (whole.filename().empty()) whole = whole.parent_path();
  if (holds_manifest(whole)) return {Kind::checkpoint, whole, run_of(whole.parent_path())};
  if (keeps_best(whole)) return {Kind::among, {}, whole.parent_path()};
  if (holds_checkpoints(whole)) return {};
  for (fs::path parent = whole.parent_path();; parent = parent.parent_path()) {
    if (holds_manifest(parent)) return {Kind::within, parent, run_of(parent.parent_path())};
    if (const fs::path run = run_of(parent); !run.empty()) return {Kind::among, {}, run};
    if (!parent.has_relative_path()) break;
  }
  return {has_kept_name(whole) ? Kind::kept_name : Kind::none, {}, {}};
}

}  // namespace ddp::ckpt
