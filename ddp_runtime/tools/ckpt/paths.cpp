// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/ckpt/paths.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::ckpt::tool {

namespace fs = std::filesystem;

namespace {

// False only for a directory that has the name of another step than its manifest.
bool has_own_name(const Checkpoint& checkpoint) {
  const std::string name = checkpoint.path().filename().string();
  return !name.starts_with("step-") || name == step_directory_name(checkpoint.manifest().step);
}

}  // namespace

std::optional<fs::path> checkpoint_in(const fs::path& path) {
  if (fs::exists(path / kManifestName)) return path;
  if (!fs::is_directory(path)) return std::nullopt;
  const auto candidates = CheckpointDirectory(path).candidates();
  for (const Candidate& candidate : candidates) {
    try {
      if (has_own_name(Checkpoint::open(candidate.path))) return candidate.path;
    } catch (const Error&) {
      return candidate.path;  // opening it again reports the error
    }
  }
  return candidates.empty() ? std::nullopt : std::optional(candidates.front().path);
}

fs::path checkpoint_at(const fs::path& path) {
  if (const auto found = checkpoint_in(path)) return *found;
  require_directory(path);
  throw UsageError(
      fmt::format("there is no checkpoint in '{0}'; ddp-ckpt inspect {1} says what is there",
                  path.string(), shell_word(path.string())));
}

void require_directory(const fs::path& path) {
  if (fs::is_directory(path)) return;
  if (const std::string link = dangling_link_text(path); !link.empty()) throw UsageError(link);
  if (!fs::exists(path))
    throw UsageError(fmt::format("there is no checkpoint '{}'", path.string()));
  throw UsageError(
      fmt::format("'{0}' is a file, not a checkpoint; ddp-ckpt inspect {1} lists what is in it",
                  path.string(), shell_word(path.string())));
}

void require_own_name(const Checkpoint& checkpoint) {
  if (has_own_name(checkpoint)) return;
  throw DamagedError(fmt::format("checkpoint '{}': its manifest says step {}; rename it to {}",
                                 checkpoint.path().string(), checkpoint.manifest().step,
                                 step_directory_name(checkpoint.manifest().step)));
}

}  // namespace ddp::ckpt::tool
