// SPDX-License-Identifier: Apache-2.0
// Converts manifests and records to JSON and back.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "hdf5_ckpt/core/checksummed_text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/core/names.h"
#include "slurm_ddp/version.h"

namespace ddp::ckpt {
namespace {

using nlohmann::json;

constexpr std::string_view kSchemaFamily = "slurm-ddp/checkpoint/";
constexpr std::uint64_t kMaxNumber = std::numeric_limits<std::int64_t>::max();

json file_to_json(const FileInfo& file) {
  return {{"name", file.name},
          {"size", file.size},
          {"block_bytes", file.block_bytes},
          {"metadata_crc32c", checksum_text(file.metadata_crc32c)}};
}

json array_to_json(const ArrayInfo& array) {
  json result = {{"name", array.name},
                 {"dtype", dtype_name(array.dtype)},
                 {"shape", array.shape},
                 {"file", array.file},
                 {"offset", array.offset},
                 {"length", array.length},
                 {"crc32c", checksum_text(array.crc32c)}};
  if (array.block_crc32c.size() > 1) {
    json& blocks = result["block_crc32c"] = json::array();
    for (const std::uint32_t crc : array.block_crc32c) blocks.push_back(checksum_text(crc));
  }
  if (array.part) {
    result["global_shape"] = array.part->global_shape;
    result["start"] = array.part->start;
  }
  return result;
}

FileInfo file_from_json(const json& value, const std::string& where) {
  const JsonFields fields(value, where);
  return {fields.text("name"), fields.number("size", kMaxNumber),
          fields.number("block_bytes", kMaxBlockBytes), fields.checksum("metadata_crc32c")};
}

Shape shape_from_json(const JsonFields& fields, const char* key) {
  Shape shape;
  for (const json& n : fields.list(key, kMaxRank)) {
    if (!n.is_number_unsigned()) fields.fail(key, "contains a value that is not a whole number");
    shape.push_back(n.get<std::uint64_t>());
  }
  return shape;
}

std::vector<std::uint32_t> blocks_from_json(const JsonFields& fields, const ArrayInfo& array) {
  if (!fields.has("block_crc32c"))
    return std::vector<std::uint32_t>(array.length != 0 ? 1 : 0, array.crc32c);
  std::vector<std::uint32_t> blocks;
  for (const json& crc : fields.list("block_crc32c", kMaxManifestBytes))
    blocks.push_back(checksum_value(crc, fields.where() + ".block_crc32c"));
  return blocks;
}

std::optional<PartOf> part_from_json(const JsonFields& fields) {
  if (!fields.has("global_shape") && !fields.has("start")) return std::nullopt;
  return PartOf{shape_from_json(fields, "global_shape"), shape_from_json(fields, "start")};
}

ArrayInfo array_from_json(const json& value, const std::string& where) {
  const JsonFields fields(value, where);
  const auto dtype = dtype_from_name(fields.text("dtype"));
  if (!dtype) fields.fail("dtype", "is not an element type that this version supports");
  ArrayInfo array{.name = fields.text("name"),
                  .dtype = *dtype,
                  .shape = shape_from_json(fields, "shape"),
                  .file = fields.text("file"),
                  .offset = fields.number("offset", kMaxNumber),
                  .length = fields.number("length", kMaxNumber),
                  .crc32c = fields.checksum("crc32c"),
                  .block_crc32c = {},
                  .part = part_from_json(fields)};
  array.block_crc32c = blocks_from_json(fields, array);
  return array;
}

template <typename Item>
std::vector<Item> items_from_json(const JsonFields& fields, const char* key, std::size_t most,
                                  Item (*item)(const json&, const std::string&)) {
  std::vector<Item> items;
  for (const json& value : fields.list(key, most))
    items.push_back(item(value, fmt::format("{}[{}]", key, items.size())));
  return items;
}

// Writes one entry per line, because people also read the file.
template <typename Item>
std::string lines_of(const std::vector<Item>& items, json (*to_json)(const Item&)) {
  std::string text;
  for (const Item& item : items) text += (text.empty() ? "\n " : ",\n ") + to_json(item).dump();
  return "[" + text + "]";
}

// Returns the lowest reader version that supports all entries of the manifest.
std::uint64_t min_reader_of(const Manifest& manifest) {
  std::uint64_t needed = kWholeArraysVersion;
  for (const ArrayInfo& array : manifest.arrays)
    needed =
        std::max(needed, version_needed(is_of_first_versions(array.dtype), array.part.has_value()));
  return needed;
}

json lineage_to_json(const Lineage& lineage) {
  json result = {{"run", lineage.run}, {"origins", json::array()}};
  if (lineage.parent) result["parent"] = *lineage.parent;
  for (const Origin& origin : lineage.origins)
    result["origins"].push_back(
        {{"step", origin.step}, {"crc32c", checksum_text(origin.crc32c)}, {"path", origin.path}});
  for (const std::uint32_t state : lineage.replaced)
    result["replaced"].push_back({{"crc32c", checksum_text(state)}});
  return result;
}

Origin origin_from_json(const json& value, const std::string& where) {
  const JsonFields fields(value, where);
  return {fields.number("step", kMaxNumber), fields.checksum("crc32c"), fields.text("path")};
}

std::uint32_t state_from_json(const json& value, const std::string& where) {
  return JsonFields(value, where).checksum("crc32c");
}

std::optional<Lineage> lineage_from_json(const JsonFields& fields) {
  if (!fields.has("lineage")) return std::nullopt;
  const JsonFields inner(fields.at("lineage"), "lineage");
  Lineage lineage;
  lineage.run = inner.text("run");
  if (inner.has("parent")) lineage.parent = inner.number("parent", kMaxNumber);
  lineage.origins = items_from_json(inner, "origins", kMaxOrigins, origin_from_json);
  if (inner.has("replaced"))
    lineage.replaced = items_from_json(inner, "replaced", kMaxReplaced, state_from_json);
  return lineage;
}

// Returns all but the checksum.
std::string fields_of(const Manifest& manifest) {
  return fmt::format(
      "\"schema\": \"{}\",\n\"min_reader\": {},\n\"producer\": \"slurm-ddp {}\",\n"
      "\"step\": {},\n\"epoch\": {},\n\"world_size\": {},\n\"run_id\": {},\n\"created_unix\": {},\n"
      "{}{}\"state\": {},\n\"files\": {},\n\"arrays\": {}}}\n",
      kSchema, min_reader_of(manifest), kVersion, manifest.step, manifest.epoch,
      manifest.world_size, json(manifest.run_id).dump(), manifest.created_unix,
      manifest.lineage
          ? fmt::format("\"lineage\": {},\n", lineage_to_json(*manifest.lineage).dump())
          : std::string(),
      manifest.permanent ? "\"permanent\": true,\n" : "", manifest.state.dump(),
      lines_of(manifest.files, file_to_json), lines_of(manifest.arrays, array_to_json));
}

void check_version(const JsonFields& fields) {
  const std::string& schema = fields.text("schema");
  if (!schema.starts_with(kSchemaFamily)) fields.fail("schema", "is not that of a checkpoint");
  const std::uint64_t needed = fields.number("min_reader", kMaxNumber);
  if (schema != kSchema || needed > kReaderVersion)
    throw Error(
        fmt::format("it was written in the newer format {} (reader version {}, this is {}): "
                    "read it with the slurm-ddp that wrote it",
                    label_problem(schema).empty() ? schema : "?", needed, kReaderVersion));
}

}  // namespace

json record_to_json(const FileRecord& record) {
  json arrays = json::array();
  for (const ArrayInfo& array : record.arrays) arrays.push_back(array_to_json(array));
  return {{"file", file_to_json(record.file)}, {"arrays", std::move(arrays)}};
}

FileRecord record_from_json(const json& value) {
  const JsonFields fields(value, "record");
  return {file_from_json(fields.at("file"), "file"),
          items_from_json(fields, "arrays", kMaxArrays, array_from_json)};
}

std::string serialize_manifest(const Manifest& manifest) {
  if (const std::string problem = json_problem(manifest.state); !problem.empty())
    throw Error(fmt::format("the state cannot be saved: {}", problem));
  check_manifest(manifest);
  std::string text = with_checksum(fields_of(manifest));
  if (text.size() > kMaxManifestBytes)
    throw Error(
        fmt::format("the manifest would take {} bytes, more than {}: save fewer arrays, a "
                    "smaller state, or larger blocks (block_bytes)",
                    text.size(), kMaxManifestBytes));
  return text;
}

Manifest parse_manifest(std::string_view text) {
  const std::uint32_t checksum = require_checksum(text, "a manifest", kMaxManifestBytes);
  const json document = parse_json(text);
  const JsonFields fields(document, "");
  check_version(fields);
  Manifest manifest;
  manifest.step = fields.number("step", kMaxNumber);
  manifest.epoch = fields.number("epoch", kMaxNumber);
  manifest.world_size = fields.number("world_size", kMaxNumber);
  manifest.run_id = fields.text("run_id");
  manifest.created_unix = static_cast<std::int64_t>(fields.number("created_unix", kMaxNumber));
  manifest.state = fields.at("state");
  manifest.lineage = lineage_from_json(fields);
  if (fields.has("permanent")) {
    const json& permanent = fields.at("permanent");
    if (!permanent.is_boolean()) fields.fail("permanent", "is neither true nor false");
    manifest.permanent = permanent.get<bool>();
  }
  manifest.files = items_from_json(fields, "files", kMaxFiles, file_from_json);
  manifest.arrays = items_from_json(fields, "arrays", kMaxArrays, array_from_json);
  check_manifest(manifest);
  manifest.crc32c = checksum;
  return manifest;
}

}  // namespace ddp::ckpt
