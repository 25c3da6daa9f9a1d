// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt ls: lists the checkpoints of a directory.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/paths.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/clean.h"

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
    entry["permanent"] = manifest.permanent;
    const json evaluation = manifest.state.value("evaluation", json());
    if (evaluation.is_object()) entry["evaluation"] = evaluation;
    if (manifest.lineage) {
      entry["run"] = manifest.lineage->run;
      if (manifest.lineage->parent) entry["parent"] = *manifest.lineage->parent;
    }
    require_own_name(checkpoint);
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
  if (!entry.contains("bytes")) return {step, "-", "-", "-", "-", "-", verdict};
  const std::string from = entry.contains("parent") ? entry["parent"].dump() : "-";
  return {step,
          from,
          time_text(entry["created_unix"].get<std::int64_t>()),
          size_text(entry["bytes"].get<std::uint64_t>()),
          std::to_string(entry["arrays"].get<std::size_t>()),
          entry["permanent"].get<bool>() ? "for good" : "-",
          verdict};
}

// The checkpoint with the best evaluation, which has a directory of its own.
json best_of(const fs::path& root, bool verify, const Output& output) {
  json entries = json::array();
  for (const Candidate& candidate : CheckpointDirectory(root / kBestName).candidates())
    entries.push_back(entry_of(candidate, verify, output));
  return entries;
}

// "best/step-00000050: loss 0.25, accuracy 0.9".
void print_best(const json& entry, const fs::path& root) {
  const fs::path path = entry["path"].get<std::string>();
  std::string text =
      path.lexically_normal().lexically_relative(fs::absolute(root).lexically_normal()).string();
  const char* separator = ": ";
  const json evaluation = entry.value("evaluation", json::object());
  for (const auto& [name, value] : evaluation.items()) {
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    text += fmt::format("{}{} {:.4f}", separator, sanitize(name), number);
    separator = ", ";
  }
  if (entry["verified"] == true) text += " (verified)";
  if (entry["verified"] == false) text += " (NO: " + entry["problem"].get<std::string>() + ")";
  fmt::print("{}\n", text);
}

bool is_bad(const json& entry) {
  return entry["verified"].is_boolean() && !entry["verified"].get<bool>();
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
  require_directory(root);
  if (fs::exists(root / kManifestName))
    throw Error(
        fmt::format("'{}' is one checkpoint; ddp-ckpt show lists its contents", root.string()));
  json entries = json::array();
  for (const Candidate& candidate : CheckpointDirectory(root).candidates())
    entries.push_back(entry_of(candidate, verify, output));
  const json best = best_of(root, verify, output);
  const bool whole = std::none_of(entries.begin(), entries.end(), is_bad) &&
                     std::none_of(best.begin(), best.end(), is_bad);
  const int status = whole || !verify ? 0 : 1;
  const std::vector<Leftover> leftovers = leftovers_in(root);
  if (output.json) {
    json names = json::array();
    for (const Leftover& leftover : leftovers)
      names.push_back(leftover.path.lexically_relative(root).string());
    const json all = {
        {"root", root.string()}, {"checkpoints", entries}, {"best", best}, {"leftovers", names}};
    fmt::print("{}\n", json_text(all));
    return status;
  }
  if (entries.empty()) fmt::print("no checkpoints in '{}'\n", root.string());
  std::vector<std::vector<std::string>> rows = {
      {"STEP", "AFTER", "SAVED (UTC)", "SIZE", "ARRAYS", "KEPT", "VERIFIED"}};
  for (const json& entry : entries) rows.push_back(row_of(entry));
  if (!entries.empty()) fmt::print("{}", table_text(rows));
  for (const json& entry : best) print_best(entry, root);
  for (const Leftover& leftover : leftovers)
    fmt::print("{}: {} ({})\n", meaning_of(leftover.kind),
               leftover.path.lexically_relative(root).string(), size_text(leftover.bytes));
  if (!leftovers.empty()) fmt::print("ddp-ckpt clean removes them\n");
  return status;
}

}  // namespace ddp::ckpt::tool
