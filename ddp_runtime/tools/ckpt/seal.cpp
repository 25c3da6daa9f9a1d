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
#include "hdf5_ckpt/seal/name_order.h"
#include "hdf5_ckpt/seal/newest.h"
#include "hdf5_ckpt/seal/sealing.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// One seal for all checkpoints of a job would be wrong with the next one.
void refuse_root(const fs::path& path) {
  if (!fs::is_directory(path) || is_checkpoint_name(real_path(path).filename().string(), true))
    return;
  for (const fs::path& inside : unsorted_checkpoints(path))
    if (fs::is_directory(inside))
      throw Error(fmt::format("'{}' holds checkpoints: seal them, such as '{}'", path.string(),
                              inside.string()));
}

void refuse_what_has_checksums(const fs::path& path) {
  const std::string name = real_path(path).filename().string();
  if (step_of_directory(name) && fs::exists(path / kManifestName))
    throw Error(
        fmt::format("'{}' has a manifest with all checksums: it needs no seal", path.string()));
  if (name == kSealName || is_seal_of_file(name))
    throw Error(fmt::format("'{}' is a seal itself", path.string()));
}

json seal_one(const fs::path& path, const Output& output) {
  refuse_what_has_checksums(path);
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
  bool all_sealed = true;
  for (const std::string& path : paths) {
    try {
      sealed.push_back(seal_one(path, output));
    } catch (const std::exception& error) {  // the others may be whole
      fmt::print(stderr, "ddp-ckpt: {}\n", error.what());
      sealed.push_back({{"path", path}, {"error", error.what()}});
      all_sealed = false;
    }
  }
  if (output.json) fmt::print("{}\n", json_text(json{{"sealed", sealed}}));
  return all_sealed ? 0 : 1;
}

int run_newest(const fs::path& root, const Output& output) {
  json result = {{"checkpoint", nullptr}, {"passed_over", json::array()}};
  const auto pass_over = [&result](const std::string& why) {
    fmt::print(stderr, "passed over: {}\n", why);
    result["passed_over"].push_back(why);
  };
  int status = 0;
  try {
    const auto newest =
        newest_whole(root, {output.threads, terminal_progress(root.string())}, pass_over);
    if (newest) result["checkpoint"] = newest->string();
    if (newest && !output.json) fmt::print("{}\n", newest->string());
    if (!newest) fmt::print(stderr, "there is no checkpoint in '{}' yet\n", root.string());
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddp-ckpt: {}\n", error.what());
    result["error"] = error.what();
    status = 1;
  }
  if (output.json) fmt::print("{}\n", json_text(result));
  return status;
}

}  // namespace ddp::ckpt::tool
