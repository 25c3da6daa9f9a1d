// SPDX-License-Identifier: Apache-2.0
// Seals as JSON, with a line for each file.

#include "hdf5_ckpt/seal/seal.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "hdf5_ckpt/core/checksummed_text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/json_fields.h"
#include "slurm_ddp/version.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kSealSchemas = "slurm-ddp/seal/";
constexpr std::string_view kSealSchema = "slurm-ddp/seal/1";
constexpr std::string_view kEnding = ".seal.json";
constexpr std::uint64_t kMaxNumber = std::numeric_limits<std::int64_t>::max();

std::string file_line(const SealedFile& file) {
  const json entry = {
      {"path", file.path}, {"bytes", file.bytes}, {"crc32c", checksum_text(file.crc32c)}};
  return entry.dump();
}

std::string link_line(const SealedLink& link) {
  return json{{"path", link.path}, {"target", link.target}}.dump();
}

template <typename Item>
std::string lines_of(const std::vector<Item>& items, std::string (*line)(const Item&)) {
  std::string text;
  for (const Item& item : items) text += (text.empty() ? "\n " : ",\n ") + line(item);
  return "[" + text + "]";
}

// A path below the directory in its only spelling, so that none is there twice and none leaves it.
bool is_inside(const std::string& path) {
  const fs::path parts(path);
  const auto leaves = [](const fs::path& part) { return part == ".." || part == "."; };
  return !path.empty() && path.find('\0') == std::string::npos && parts.is_relative() &&
         parts.has_filename() && parts.lexically_normal().native() == path &&
         std::none_of(parts.begin(), parts.end(), leaves);
}

std::string path_in(const JsonFields& fields) {
  const std::string& path = fields.text("path");
  if (!path.empty() && !is_inside(path)) fields.fail("path", "is not that of a file below it");
  return path;
}

template <typename Item>
void require_order(const std::vector<Item>& items, const char* key) {
  const bool ordered =
      std::adjacent_find(items.begin(), items.end(), [](const Item& a, const Item& b) {
        return a.path >= b.path;
      }) == items.end();
  if (!ordered) throw DamagedError(fmt::format("{} are not in the order of their paths", key));
}

std::vector<SealedFile> files_in(const JsonFields& fields) {
  std::vector<SealedFile> files;
  for (const json& value : fields.list("files", kMaxSealedFiles)) {
    const JsonFields file(value, fmt::format("files[{}]", files.size()));
    files.push_back({path_in(file), file.number("bytes", kMaxNumber), file.checksum("crc32c")});
  }
  require_order(files, "files");
  if (files.empty()) throw DamagedError("it names no file");
  if (files.front().path.empty() && files.size() > 1)
    throw DamagedError("it is that of a file and of a directory");
  return files;
}

std::vector<SealedLink> links_in(const JsonFields& fields) {
  std::vector<SealedLink> links;
  for (const json& value : fields.list("links", kMaxSealedFiles)) {
    const JsonFields link(value, fmt::format("links[{}]", links.size()));
    links.push_back({path_in(link), link.text("target")});
  }
  require_order(links, "links");
  return links;
}

void require_version(const JsonFields& fields) {
  const std::string& schema = fields.text("schema");
  if (!schema.starts_with(kSealSchemas)) fields.fail("schema", "is not that of a seal");
  if (schema != kSealSchema)
    throw Error("it was written in a newer format: read it with the slurm-ddp that wrote it");
}

}  // namespace

fs::path seal_of(const fs::path& checkpoint) {
  if (fs::is_directory(checkpoint)) return checkpoint / kSealName;
  fs::path seal = checkpoint;
  return seal += kEnding;
}

bool is_seal_of_file(std::string_view name) {
  return name.size() > kEnding.size() && name.ends_with(kEnding);
}

std::string serialize_seal(const Seal& seal) {
  try {
    std::string text = with_checksum(fmt::format(
        "\"schema\": \"{}\",\n\"producer\": \"slurm-ddp {}\",\n\"written_unix_ns\": {},\n"
        "\"links\": {},\n\"files\": {}}}\n",
        kSealSchema, kVersion, seal.written_ns, lines_of(seal.links, link_line),
        lines_of(seal.files, file_line)));
    if (text.size() > kMaxSealBytes || seal.files.size() > kMaxSealedFiles ||
        seal.links.size() > kMaxSealedFiles)
      throw Error("it has too many files for a seal");
    return text;
  } catch (const json::type_error&) {
    throw Error("the name of a file in it is not UTF-8");
  }
}

Seal parse_seal(std::string_view text) {
  require_checksum(text, "a seal", kMaxSealBytes);
  const json document = parse_json(text);
  const JsonFields fields(document, "");
  require_version(fields);
  Seal seal;
  seal.written_ns = static_cast<std::int64_t>(fields.number("written_unix_ns", kMaxNumber));
  seal.files = files_in(fields);
  seal.links = links_in(fields);
  return seal;
}

}  // namespace ddp::ckpt
