// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt inspect: lists what is in a file of another program, without converting it.

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/paths.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/convert/foreign_file.h"

namespace ddp::ckpt::tool {
namespace {

using nlohmann::json;

std::uint64_t array_bytes(const ExternalArray& array) {
  return byte_count(array.dtype, array.shape).value();
}

json to_json(const std::vector<Omission>& omissions) {
  json all = json::array();
  for (const Omission& one : omissions) all.push_back({{"name", one.name}, {"reason", one.reason}});
  return all;
}

json to_json(const ForeignFile& file) {
  const FileContents& contents = file.contents();
  json arrays = json::array();
  for (const ExternalArray& array : contents.arrays)
    arrays.push_back({{"name", array.name},
                      {"dtype", dtype_name(array.dtype)},
                      {"shape", array.shape},
                      {"bytes", array_bytes(array)}});
  return {{"path", file.path().string()},
          {"format", kind_name(file.kind())},
          {"files", file.files()},
          {"arrays", std::move(arrays)},
          {"unreadable", to_json(contents.unreadable)},
          {"renamed", to_json(contents.renamed)},
          {"values", contents.values},
          {"left_out", contents.left_out.count()},
          {"left_out_named", to_json(contents.left_out.named())}};
}

void print_for_people(const ForeignFile& file) {
  const FileContents& contents = file.contents();
  std::uint64_t bytes = 0;
  std::vector<std::vector<std::string>> rows = {{"ARRAY", "DTYPE", "SHAPE"}};
  for (const ExternalArray& array : contents.arrays) {
    bytes += array_bytes(array);
    rows.push_back({array.name, std::string(dtype_name(array.dtype)), shape_text(array.shape)});
  }
  for (const Omission& one : contents.unreadable)
    rows.push_back({sanitize(one.name), "cannot be read", sanitize(one.reason)});
  fmt::print("{}", table_text({{"path", file.path().string()},
                               {"format", std::string(kind_name(file.kind()))},
                               {"files", std::to_string(file.files())},
                               {"arrays", std::to_string(contents.arrays.size())},
                               {"size", size_text(bytes)}}));
  fmt::print("values      {}\n\n{}", json_text(contents.values), table_text(rows));
  if (!contents.renamed.empty()) fmt::print("\n{}\n", renamings_text(contents));
  const Omissions& left_out = contents.left_out;
  if (left_out.count() == 0) return;
  fmt::print("\n{} that convert leaves out:\n", counted(left_out.count(), "object"));
  for (const Omission& one : left_out.named())
    fmt::print("{}: {}\n", sanitize(one.name), sanitize(one.reason));
  if (left_out.count() > left_out.named().size()) fmt::print("...\n");
}

}  // namespace

int run_inspect(const std::filesystem::path& path, const Output& output) {
  if (checkpoint_in(path)) return run_show(path, output);
  const ForeignFile file = ForeignFile::open(path, PlainHdf5::read);
  if (output.json)
    fmt::print("{}\n", json_text(to_json(file)));
  else
    print_for_people(file);
  return 0;
}

}  // namespace ddp::ckpt::tool
