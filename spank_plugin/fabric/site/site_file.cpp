// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/site/site_file.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/fabric/files/error.h"
#include "spank_plugin/fabric/files/text.h"

namespace ddp::fabric {
namespace {

constexpr std::size_t kMaxLines = 4096;
constexpr std::size_t kMaxLineLength = 4096;
constexpr std::size_t kMaxPresets = 64;
constexpr std::size_t kMaxValues = 64;

bool is_preset_name(std::string_view name) {
  return !name.empty() && name.size() <= 32 && name != "none" &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

std::optional<NcclVersion> parse_version(std::string_view text) {
  const auto parts = split(text, '.', 4);
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  for (const auto part : parts) {
    if (part.size() > 3 || !parse_decimal(part)) return std::nullopt;
  }
  return NcclVersion{static_cast<int>(*parse_decimal(parts[0])),
                     static_cast<int>(*parse_decimal(parts[1]))};
}

bool is_hca_list(std::string_view text) {
  const auto entries = split(text, ',', 257);
  return entries.size() <= 256 && std::all_of(entries.begin(), entries.end(), [](auto entry) {
           const std::size_t colon = std::min(entry.find(':'), entry.size());
           const auto port = entry.substr(std::min(colon + 1, entry.size()));
           return is_device_name(entry.substr(0, colon)) &&
                  (colon == entry.size() || (port.size() <= 3 && parse_decimal(port)));
         });
}

class Reader {
 public:
  explicit Reader(SiteFile& site) : site_(site) {}

  void read_line(std::string_view line, std::size_t number) {
    number_ = number;
    if (line.size() > kMaxLineLength) fail("is longer than 4096 characters");
    line = trimmed(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') return;
    if (line.front() == '[') return open_section(line);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) fail("must be KEY = VALUE, [preset NAME] or a comment");
    const auto key = trimmed(line.substr(0, equals));
    const auto value = trimmed(line.substr(equals + 1));
    if (!is_plain_value(value)) fail("has a value that is not printable ASCII, or too long");
    if (in_preset_) return add_value(key, value);
    set_key(key, value);
  }

  void finish() {
    number_ = preset_line_;
    if (site_.preset && *site_.preset != "none" && !find_preset(site_.presets, *site_.preset)) {
      fail("asks for preset " + quote_for_display(*site_.preset) +
           ", which does not exist: known presets are " + preset_names(site_.presets));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FabricError(site_.path + ": line " + std::to_string(number_) + " " + what);
  }

  void open_section(std::string_view line) {
    constexpr std::string_view kStart = "[preset ";
    if (!line.starts_with(kStart) || line.back() != ']') fail("must be [preset NAME]");
    const auto name = trimmed(line.substr(kStart.size(), line.size() - kStart.size() - 1));
    if (!is_preset_name(name)) {
      fail("names a preset " + quote_for_display(name) + ": use a-z, 0-9, - and _, at most 32");
    }
    const bool again = std::any_of(site_.presets.begin(), site_.presets.end(),
                                   [name](const auto& preset) { return preset.name == name; });
    if (again) fail("begins preset " + quote_for_display(name) + " a second time");
    if (site_.presets.size() == kMaxPresets) fail("exceeds the limit of 64 presets");
    site_.presets.push_back({std::string(name), site_.path, {}});
    in_preset_ = true;
  }

  void add_value(std::string_view variable, std::string_view value) {
    auto& preset = site_.presets.back();
    if (!may_preset_set(variable)) {
      fail("sets " + quote_for_display(variable) +
           ": a preset may set variables of the communication libraries only");
    }
    const bool again =
        std::any_of(preset.values.begin(), preset.values.end(),
                    [variable](const auto& entry) { return entry.first == variable; });
    if (again) fail("sets " + quote_for_display(variable) + " a second time");
    if (preset.values.size() == kMaxValues) fail("exceeds the limit of 64 values");
    preset.values.emplace_back(variable, value);
  }

  void set_key(std::string_view key, std::string_view value) {
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) {
      fail("sets key " + quote_for_display(key) + " a second time");
    }
    seen_.emplace_back(key);
    if (key == "preset") {
      site_.preset = value;  // checked at the end: it may be defined below
      preset_line_ = number_;
    } else if (key == "interface") {
      if (!is_interface_name(value))
        fail_value(key, value, "the name of an interface, such as eth0");
      site_.interface = value;
    } else if (key == "ib_hca") {
      if (!is_hca_list(value)) fail_value(key, value, "a list such as mlx5_0:1,mlx5_1:1");
      site_.ib_hca = value;
    } else if (key == "nccl_version") {
      site_.nccl_version = parse_version(value);
      if (!site_.nccl_version) fail_value(key, value, "a version such as 2.18");
    } else if (key == "ucx") {
      if (value != "bind" && value != "leave") fail_value(key, value, "bind or leave");
      site_.bind_ucx = value == "bind";
    } else {
      fail("has the unknown key " + quote_for_display(key) +
           ": known keys are preset, interface, ib_hca, nccl_version, ucx");
    }
  }

  [[noreturn]] void fail_value(std::string_view key, std::string_view value,
                               const std::string& expected) const {
    fail("gives " + quote_for_display(key) + " the value " + quote_for_display(value) +
         ": it must be " + expected);
  }

  SiteFile& site_;
  std::size_t number_ = 0;
  std::size_t preset_line_ = 0;
  bool in_preset_ = false;
  std::vector<std::string> seen_;
};

}  // namespace

SiteFile parse_site_file(std::string_view text, const std::string& path) {
  SiteFile site;
  site.path = path;
  Reader reader(site);
  const auto lines = split(text, '\n', kMaxLines + 1);
  if (lines.size() > kMaxLines) throw FabricError(path + " has more than 4096 lines");
  for (std::size_t i = 0; i < lines.size(); ++i) reader.read_line(lines[i], i + 1);
  reader.finish();
  return site;
}

}  // namespace ddp::fabric
