// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt verify: reads every byte and compares checksums.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/text.h"
#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/paths.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/seal/name_order.h"
#include "hdf5_ckpt/seal/newest.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Those of other programs, if any of them is sealed.
std::vector<fs::path> sealed_in(const fs::path& root) {
  std::vector<fs::path> paths = checkpoints_in(root);
  std::erase_if(paths, is_of_this_project);
  return std::ranges::any_of(paths, is_sealed) ? paths : std::vector<fs::path>();
}

std::vector<fs::path> checkpoints_at(const fs::path& path) {
  if (is_sealed(path) || fs::exists(path / kManifestName)) return {path};
  require_directory(path);
  std::vector<fs::path> paths = sealed_in(path);
  for (const fs::path& root : with_best_directory(path))
    for (const Candidate& candidate : CheckpointDirectory(root).candidates())
      if (std::ranges::find(paths, candidate.path) == paths.end()) paths.push_back(candidate.path);
  if (paths.empty() && is_checkpoint_name(real_path(path).filename().string(), true))
    return {path};  // without a seal
  return paths.empty() ? std::vector{checkpoint_at(path)} : paths;
}

void verify_arrays(const fs::path& path, const Output& output, json& result) {
  const Checkpoint checkpoint = Checkpoint::open(path);
  require_own_name(checkpoint);
  checkpoint.verify({output.threads, terminal_progress(path.filename().string())});
  result["arrays"] = checkpoint.arrays().size();
  result["bytes"] = checkpoint.total_bytes();
}

void verify_files(const fs::path& path, const Output& output, json& result) {
  const SealedContents sealed =
      verify_sealed(path, {output.threads, terminal_progress(path.filename().string())});
  result["files"] = sealed.files;
  result["added"] = sealed.added;
  result["bytes"] = sealed.bytes;
}

json verify_one(const fs::path& path, const Output& output) {
  json result = {{"path", path.string()}, {"whole", true}};
  try {
    if (is_sealed(path))
      verify_files(path, output, result);
    else if (step_of_directory(path.filename().string()) || fs::exists(path / kManifestName))
      verify_arrays(path, output, result);
    else
      throw Error(fmt::format("'{}' is not sealed: if it is complete, run ddp-ckpt seal {}",
                              path.string(), shell_word(path.string())));
  } catch (const DamagedError& error) {
    result["whole"] = false;
    result["problem"] = error.what();
  } catch (const std::exception& error) {
    // The state of the data is unknown: the checkpoint has a newer version or is temporarily
    // unreadable.
    result["whole"] = nullptr;
    result["problem"] = error.what();
  }
  return result;
}

// "14 arrays", or "7 files as sealed, 1 added later".
std::string contents_text(const json& result) {
  if (result.contains("arrays")) return counted(result["arrays"].get<std::size_t>(), "array");
  const auto added = result["added"].get<std::size_t>();
  return counted(result["files"].get<std::size_t>(), "file") + " as sealed" +
         (added == 0 ? "" : fmt::format(", {} added later", added));
}

void print_verified(const json& result) {
  if (result["whole"].is_null())
    fmt::print("NOT VERIFIED: {}\n", result["problem"].get<std::string>());
  else if (result["whole"].get<bool>())
    fmt::print("whole: '{}', {}, {}\n", result["path"].get<std::string>(), contents_text(result),
               size_text(result["bytes"].get<std::uint64_t>()));
  else
    fmt::print("DAMAGED: {}\n", result["problem"].get<std::string>());
}

}  // namespace

int run_verify(const fs::path& path, const Output& output) {
  json results = json::array();
  bool all_whole = true;
  for (const fs::path& checkpoint : checkpoints_at(path)) {
    results.push_back(verify_one(checkpoint, output));
    all_whole = all_whole && results.back()["whole"] == true;
    if (!output.json) print_verified(results.back());
  }
  if (output.json)
    fmt::print("{}\n", json_text(json{{"whole", all_whole}, {"checkpoints", results}}));
  return all_whole ? 0 : 1;
}

}  // namespace ddp::ckpt::tool
