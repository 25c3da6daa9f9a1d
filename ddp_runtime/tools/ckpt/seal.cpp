// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt seal and newest, for checkpoints of any program.

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/seal/name_order.h"
#include "hdf5_ckpt/seal/newest.h"
#include "hdf5_ckpt/seal/sealing.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The last part of a path, also of "." and of one with a slash at its end.
std::string absolute_name(const fs::path& path) {
  return absolute_directory(path).filename().string();
}

// One seal for all checkpoints of a job would be wrong with the next one.
void refuse_root(const fs::path& path) {
  if (!fs::is_directory(path) || is_checkpoint_name(absolute_name(path), true)) return;
  for (const fs::path& inside : unsorted_checkpoints(path))
    if (fs::is_directory(inside))
      throw Error(fmt::format("'{}' holds checkpoints: seal them, such as '{}'", path.string(),
                              inside.string()));
}

void refuse_own(const fs::path& path) {
  if (step_of_directory(absolute_name(path)) && fs::exists(path / kManifestName))
    throw Error(
        fmt::format("'{}' has a manifest with all checksums: it needs no seal", path.string()));
}

json seal_one(const fs::path& path, const Output& output) {
  refuse_own(path);
  refuse_root(path);
  const SealedContents sealed =
      seal_checkpoint(path, {output.threads, terminal_progress(path.filename().string())});
  if (!output.json) fmt::print("{}\n", sealed_text(path, sealed));
  return {{"path", path.string()},
          {"files", sealed.files},
          {"links", sealed.links},
          {"bytes", sealed.bytes}};
}

}  // namespace

std::string sealed_text(const fs::path& path, const SealedContents& sealed) {
  return fmt::format("sealed: '{}', {}, {}{}", path.string(), counted(sealed.files, "file"),
                     size_text(sealed.bytes),
                     sealed.links == 0 ? "" : ", " + counted(sealed.links, "link"));
}

int run_seal(const std::vector<std::string>& paths, const Output& output) {
  json sealed = json::array();
  for (const std::string& path : paths) sealed.push_back(seal_one(path, output));
  if (output.json) fmt::print("{}\n", json_text(json{{"sealed", sealed}}));
  return 0;
}

int run_newest(const fs::path& root, const Output& output) {
  json passed_over = json::array();
  const auto newest = newest_whole(root, {output.threads, terminal_progress(root.string())},
                                   [&passed_over](const std::string& why) {
                                     fmt::print(stderr, "passed over: {}\n", why);
                                     passed_over.push_back(why);
                                   });
  if (!newest) fmt::print(stderr, "there is no checkpoint in '{}' yet\n", root.string());
  const json path = newest ? json(newest->string()) : json();
  if (output.json)
    fmt::print("{}\n", json_text(json{{"checkpoint", path}, {"passed_over", passed_over}}));
  else if (newest)
    fmt::print("{}\n", newest->string());
  return 0;
}

}  // namespace ddp::ckpt::tool
