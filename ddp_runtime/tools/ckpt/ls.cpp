// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt ls: lists the checkpoints of a directory.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/clean.h"
#include "hdf5_ckpt/error.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// One checkpoint as JSON; the table is generated from it.
json entry_of(const Candidate& candidate, bool verify, const Output& output) {
  json entry = {{"step", candidate.step}, {"path", candidate.path.string()}, {"verified", nullptr}};
  try {
    const Checkpoint checkpoint = Checkpoint::open(candidate.path);
    const Manifest& manifest = checkpoint.manifest();
    entry["created_unix"] = manifest.created_unix;
    entry["bytes"] = checkpoint.total_bytes();
    entry["arrays"] = manifest.arrays.size();
    entry["epoch"] = manifest.epoch;
    entry["world_size"] = manifest.world_size;
    entry["run_id"] = manifest.run_id;
    if (manifest.lineage) {
      entry["run"] = manifest.lineage->run;
      if (manifest.lineage->parent) entry["parent"] = *manifest.lineage->parent;
    }
    if (!verify) return entry;
    checkpoint.verify({output.threads, terminal_progress(step_directory_name(candidate.step))});
    entry["verified"] = true;
  } catch (const Error& error) {
    entry["verified"] = false;
    entry["problem"] = error.what();
  }
  return entry;
}

std::vector<std::string> row_of(const json& entry) {
  const std::string step = std::to_string(entry["step"].get<std::uint64_t>());
  const std::string verdict = entry["verified"].is_null() ? "not read"
                              : entry["verified"].get<bool>()
                                  ? "yes"
                                  : "NO: " + entry["problem"].get<std::string>();
  if (!entry.contains("bytes")) return {step, "-", "-", "-", "-", verdict};
  const std::string from = entry.contains("parent") ? entry["parent"].dump() : "-";
  return {step,
          from,
          time_text(entry["created_unix"].get<std::int64_t>()),
          size_text(entry["bytes"].get<std::uint64_t>()),
          std::to_string(entry["arrays"].get<std::size_t>()),
          verdict};
}

const char* meaning_of(Leftover::Kind kind) {
  switch (kind) {
    case Leftover::Kind::unfinished:
      return "not a checkpoint, but takes space";
    case Leftover::Kind::set_aside:
      return "set aside, no run resumes from it";
    case Leftover::Kind::replaced:
      return "damaged, replaced by a complete one";
  }
  return "";
}

}  // namespace

int run_ls(const fs::path& root, bool verify, const Output& output) {
  if (!fs::is_directory(root)) throw Error(fmt::format("'{}' is not a directory", root.string()));
  if (fs::exists(root / kManifestName))
    throw Error(
        fmt::format("'{}' is one checkpoint; ddp-ckpt show lists its contents", root.string()));
  json entries = json::array();
  for (const Candidate& candidate : CheckpointDirectory(root).candidates())
    entries.push_back(entry_of(candidate, verify, output));
  const bool whole = std::none_of(entries.begin(), entries.end(), [](const json& entry) {
    return entry["verified"].is_boolean() && !entry["verified"].get<bool>();
  });
  const int status = whole || !verify ? 0 : 1;
  const std::vector<Leftover> leftovers = leftovers_in(root);
  if (output.json) {
    json names = json::array();
    for (const Leftover& leftover : leftovers)
      names.push_back(leftover.path.lexically_relative(root).string());
    const json all = {{"root", root.string()}, {"checkpoints", entries}, {"leftovers", names}};
    fmt::print("{}\n", json_text(all));
    return status;
  }
  if (entries.empty()) fmt::print("no checkpoints in '{}'\n", root.string());
  std::vector<std::vector<std::string>> rows = {
      {"STEP", "AFTER", "SAVED (UTC)", "SIZE", "ARRAYS", "VERIFIED"}};
  for (const json& entry : entries) rows.push_back(row_of(entry));
  if (!entries.empty()) fmt::print("{}", table_text(rows));
  for (const Leftover& leftover : leftovers)
    fmt::print("{}: {} ({})\n", meaning_of(leftover.kind),
               leftover.path.lexically_relative(root).string(), size_text(leftover.bytes));
  if (!leftovers.empty()) fmt::print("ddp-ckpt clean removes them\n");
  return status;
}

}  // namespace ddp::ckpt::tool
