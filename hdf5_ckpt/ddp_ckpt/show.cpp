// ddp-ckpt show: what one checkpoint holds, from its manifest.

#include <fmt/format.h>

#include <cstdio>

#include "hdf5_ckpt/checkpoint.h"
#include "hdf5_ckpt/ddp_ckpt/commands.h"
#include "hdf5_ckpt/ddp_ckpt/text.h"

namespace ddp::ckpt::tool {
namespace {

using nlohmann::json;

json array_to_json(const ArrayInfo& array) {
  return {{"name", array.name},
          {"dtype", dtype_name(array.dtype)},
          {"shape", array.shape},
          {"bytes", array.length},
          {"file", array.file},
          {"offset", array.offset},
          {"crc32c", fmt::format("{:08x}", array.crc32c)}};
}

json to_json(const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  json files = json::array();
  for (const FileInfo& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.size}});
  json arrays = json::array();
  for (const ArrayInfo& array : manifest.arrays) arrays.push_back(array_to_json(array));
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
  // Only ASCII: the state is free text that may come from anyone.
  fmt::print("state       {}\n\n", manifest.state.dump(1, ' ', true));
  std::vector<std::vector<std::string>> rows = {{"ARRAY", "DTYPE", "SHAPE", "CRC32C", "FILE"}};
  for (const ArrayInfo& array : manifest.arrays)
    rows.push_back({array.name, std::string(dtype_name(array.dtype)), shape_text(array.shape),
                    fmt::format("{:08x}", array.crc32c), array.file});
  fmt::print("{}", table_text(rows));
}

}  // namespace

int run_show(const std::filesystem::path& path, const Output& output) {
  const Checkpoint checkpoint = Checkpoint::open(checkpoint_at(path));
  if (output.json)
    fmt::print("{}\n", to_json(checkpoint).dump(1, ' ', true));
  else
    print_for_people(checkpoint);
  return 0;
}

}  // namespace ddp::ckpt::tool
