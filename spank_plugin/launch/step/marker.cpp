// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/marker.h"

#include <algorithm>

#include "base/text.h"
#include "spank_plugin/launch/step/text.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMaxMarkerText = 16'384;
constexpr std::size_t kMaxNames = 256;

}  // namespace

std::string format_marker(const Marker& marker) {
  std::string text = marker.step + ":";
  const char* separator = "";
  for (const auto& [name, hash] : marker.variables) {
    text.append(separator).append(name);
    separator = ",";
    if (!hash.empty()) text.append("=").append(hash);
  }
  return text + ":" + marker.reserved_ports;
}

std::string hash_for_marker(std::string_view value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::uint64_t hash = hash_of(value);
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) {
    text += kDigits[((hash >> 32U ^ hash) >> static_cast<unsigned>(shift)) & 15U];
  }
  return text;
}

std::optional<Marker> parse_marker(std::string_view text) {
  if (text.size() > kMaxMarkerText) return std::nullopt;
  const auto fields = split(text, ':');
  if (fields.size() != 3 || fields[0].empty()) return std::nullopt;
  Marker marker{std::string(fields[0]), {}, std::string(fields[2])};
  if (!fields[1].empty()) {
    for (const auto word : split(fields[1], ',')) {
      const auto equals = word.find('=');
      const bool has_hash = equals != std::string_view::npos;
      if (has_hash && equals + 1 == word.size()) return std::nullopt;
      marker.variables.push_back({std::string(word.substr(0, equals)),
                                  std::string(has_hash ? word.substr(equals + 1) : "")});
    }
  }
  if (marker.variables.size() > kMaxNames) return std::nullopt;
  return marker;
}

Inherited::Inherited(EnvLookup environment, std::string step)
    : environment_(std::move(environment)), step_(std::move(step)) {
  if (const auto text = environment_(variable::kMarker)) marker_ = parse_marker(*text);
}

bool Inherited::is_marked(const std::string& name) const {
  if (!marker_) return false;
  const auto found = std::find_if(marker_->variables.begin(), marker_->variables.end(),
                                  [&](const MarkedVariable& v) { return v.name == name; });
  if (found == marker_->variables.end()) return false;
  if (found->hash.empty()) return true;
  const auto value = environment_(name);
  return !value || hash_for_marker(*value) == found->hash;
}

bool Inherited::is_left_over(const std::string& name) const {
  return marker_ && marker_->step != step_ && is_marked(name);
}

std::vector<std::string> Inherited::marked_names() const {
  std::vector<std::string> names;
  if (!marker_) return names;
  for (const auto& variable : marker_->variables) {
    if (is_marked(variable.name)) names.push_back(variable.name);
  }
  return names;
}

std::optional<std::string> Inherited::from_user(const std::string& name) const {
  if (is_marked(name)) return std::nullopt;
  auto value = environment_(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

std::optional<std::string> Inherited::from_this_step(const std::string& name) const {
  if (!is_marked(name) || marker_->step != step_) return std::nullopt;
  return environment_(name);
}

bool Inherited::gives(const std::string& name) const {
  return from_user(name).has_value() || from_this_step(name).has_value();
}

bool Inherited::are_ports_of_another_step(std::string_view reserved_ports) const {
  return marker_ && marker_->step != step_ && marker_->reserved_ports == reserved_ports;
}

}  // namespace ddp::launch
