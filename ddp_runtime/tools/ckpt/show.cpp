// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt show: prints the contents of one checkpoint, from its manifest.

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/paths.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt::tool {
namespace {

using nlohmann::json;

json stored_to_json(const ArrayInfo& info) {
  return {
      {"file", info.file}, {"offset", info.offset}, {"crc32c", fmt::format("{:08x}", info.crc32c)}};
}

json part_to_json(const ArrayInfo& info) {
  json part = stored_to_json(info);
  part["start"] = info.part->start;
  part["shape"] = info.shape;
  part["bytes"] = info.length;
  return part;
}

json array_to_json(const StoredArray& array) {
  json result = {{"name", array.name},
                 {"dtype", dtype_name(array.dtype)},
                 {"shape", array.shape},
                 {"bytes", array.length}};
  if (!array.parts.front().part) {
    result.update(stored_to_json(array.parts.front()));
    return result;
  }
  for (const ArrayInfo& info : array.parts) result["parts"].push_back(part_to_json(info));
  return result;
}

// One row for an array, and one for each of its parts, if any.
void add_rows(const StoredArray& array, std::vector<std::vector<std::string>>& rows) {
  const ArrayInfo& first = array.parts.front();
  const std::string dtype(dtype_name(array.dtype));
  if (!first.part) {
    rows.push_back({array.name, dtype, shape_text(array.shape), fmt::format("{:08x}", first.crc32c),
                    first.file});
    return;
  }
  rows.push_back(
      {array.name, dtype, shape_text(array.shape), "", counted(array.parts.size(), "part")});
  for (const ArrayInfo& info : array.parts)
    rows.push_back({"  from " + shape_text(info.part->start), "", shape_text(info.shape),
                    fmt::format("{:08x}", info.crc32c), info.file});
}

json to_json(const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  json files = json::array();
  for (const FileInfo& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.size}});
  json arrays = json::array();
  for (const StoredArray& array : checkpoint.arrays()) arrays.push_back(array_to_json(array));
  return {{"path", checkpoint.path().string()},
          {"step", manifest.step},
          {"epoch", manifest.epoch},
          {"world_size", manifest.world_size},
          {"run_id", manifest.run_id},
          {"created_unix", manifest.created_unix},
          {"state", manifest.state},
          {"files", std::move(files)},
          {"arrays", std::move(arrays)}};
}

void print_for_people(const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  fmt::print("{}", table_text({{"path", checkpoint.path().string()},
                               {"step", std::to_string(manifest.step)},
                               {"epoch", std::to_string(manifest.epoch)},
                               {"world size", std::to_string(manifest.world_size)},
                               {"run", manifest.run_id},
                               {"saved (UTC)", time_text(manifest.created_unix)},
                               {"size", size_text(checkpoint.total_bytes())}}));
  fmt::print("state       {}\n\n", json_text(manifest.state));
  std::vector<std::vector<std::string>> rows = {{"ARRAY", "DTYPE", "SHAPE", "CRC32C", "FILE"}};
  for (const StoredArray& array : checkpoint.arrays()) add_rows(array, rows);
  fmt::print("{}", table_text(rows));
}

}  // namespace

int run_show(const std::filesystem::path& path, const Output& output) {
  const Checkpoint checkpoint = Checkpoint::open(checkpoint_at(path));
  if (output.json)
    fmt::print("{}\n", json_text(to_json(checkpoint)));
  else
    print_for_people(checkpoint);
  return 0;
}

}  // namespace ddp::ckpt::tool
