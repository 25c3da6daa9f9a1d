// ddp-ckpt ls: which checkpoints there are.

#include <fmt/format.h>

#include <cstdio>

#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/ddp_ckpt/commands.h"
#include "hdf5_ckpt/ddp_ckpt/text.h"
#include "hdf5_ckpt/error.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// One checkpoint as JSON: the table is made from it.
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
    if (!verify) return entry;
    checkpoint.verify({output.threads, terminal_progress(step_folder_name(candidate.step))});
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
  if (!entry.contains("bytes")) return {step, "-", "-", "-", verdict};
  return {step, time_text(entry["created_unix"].get<std::int64_t>()),
          size_text(entry["bytes"].get<std::uint64_t>()),
          std::to_string(entry["arrays"].get<std::size_t>()), verdict};
}

// Folders that are no checkpoints, but take space.
std::vector<std::string> leftovers_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    for (const char* kind : {".tmp-step-", ".trash-step-", ".broken-step-"})
      if (name.starts_with(kind)) names.push_back(name);
  }
  return names;
}

}  // namespace

int run_ls(const fs::path& root, bool verify, const Output& output) {
  if (!fs::is_directory(root)) throw Error(fmt::format("'{}' is not a folder", root.string()));
  json entries = json::array();
  for (const Candidate& candidate : CheckpointDirectory(root).candidates())
    entries.push_back(entry_of(candidate, verify, output));
  const std::vector<std::string> leftovers = leftovers_in(root);
  if (output.json) {
    const json all = {{"root", root.string()}, {"checkpoints", entries}, {"leftovers", leftovers}};
    fmt::print("{}\n", all.dump(1));
    return 0;
  }
  if (entries.empty()) fmt::print("no checkpoints in '{}'\n", root.string());
  std::vector<std::vector<std::string>> rows = {
      {"STEP", "SAVED (UTC)", "SIZE", "ARRAYS", "VERIFIED"}};
  for (const json& entry : entries) rows.push_back(row_of(entry));
  if (!entries.empty()) fmt::print("{}", table_text(rows));
  for (const std::string& name : leftovers)
    fmt::print("not a checkpoint, but takes space: {}\n", name);
  return 0;
}

}  // namespace ddp::ckpt::tool
