// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/name_map.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/errors.h"
#include "base/text.h"
#include "hdf5_ckpt/convert/shipped_maps.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxMapBytes = std::size_t{1} << 20;

std::string_view without_comment(std::string_view line) {
  return trimmed(line.substr(0, line.find('#')));
}

std::string contents_of(const fs::path& path) {
  std::error_code ignored;
  // Not a pipe or a device, which might never end.
  if (!fs::is_regular_file(path, ignored)) {
    throw UsageError("there is no map or file " + quote_for_display(path.string()) +
                     "; the maps are " + shipped_map_names());
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxMapBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) {
    throw UsageError("the map " + quote_for_display(path.string()) + " cannot be read");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxMapBytes) {
    throw UsageError("the map " + quote_for_display(path.string()) +
                     " is larger than 1 MiB, so it is not a map of names");
  }
  return text;
}

}  // namespace

NameMap NameMap::parse(std::string_view text, const std::string& origin) {
  NameMap map;
  map.origin_ = origin;
  std::size_t number = 0;
  for (const auto line : split(text, '\n')) {
    ++number;
    try {
      map.add_line(without_comment(line));
    } catch (const UsageError& e) {
      throw UsageError("line " + std::to_string(number) + " of the map " +
                       quote_for_display(origin) + ": " + e.what());
    }
  }
  return map;
}

NameMap NameMap::open(const std::string& name_or_path) {
  if (const auto shipped = shipped_map(name_or_path)) return parse(*shipped, name_or_path);
  return parse(contents_of(name_or_path), name_or_path);
}

void NameMap::add_line(std::string_view line) {
  if (line.empty()) return;
  const auto words = words_of(line);
  if (words.size() == 2 && words[0] == "prefix") {
    prefixes_.emplace_back(words[1]);
    return;
  }
  const bool transposed = words.size() == 4 && words[3] == "transpose";
  if (words.size() < 3 || words[1] != "->" || (words.size() > 3 && !transposed)) {
    throw UsageError(
        "expected 'prefix TEXT', 'THEIRS -> OURS', 'THEIRS -> OURS transpose' or 'THEIRS -> -'");
  }
  Rule rule{NamePattern(std::string(words[0])), std::nullopt, transposed};
  if (words[2] != "-") {
    rule.ours.emplace(std::string(words[2]));
    if (rule.ours->stars() != rule.theirs.stars()) {
      throw UsageError("both sides must have the same number of '*'");
    }
  }
  rules_.push_back(std::move(rule));
}

MappedName NameMap::map(std::string_view theirs) const {
  for (const auto& prefix : prefixes_) {
    if (!theirs.starts_with(prefix) || theirs.size() == prefix.size()) continue;
    theirs.remove_prefix(prefix.size());
    break;
  }
  for (const auto& rule : rules_) {
    const auto texts = rule.theirs.match(theirs);
    if (!texts) continue;
    if (!rule.ours) return {std::nullopt, false, true};
    return {rule.ours->with(*texts), rule.transposed, true};
  }
  return {std::string(theirs), false, false};
}

MappedName NameMap::map_back(std::string_view ours) const {
  for (const auto& rule : rules_) {
    const auto texts = rule.ours ? rule.ours->match(ours) : std::nullopt;
    if (!texts) continue;
    const auto theirs = rule.theirs.with(*texts);
    if (map(theirs).name == ours) return {theirs, rule.transposed, true};
  }
  if (map(ours).name == ours) return {std::string(ours), false, false};
  throw UsageError("the map " + quote_for_display(origin_) + " leads from no name to " +
                   quote_for_display(std::string(ours)));
}

}  // namespace ddp::ckpt
