#include "spank_plugin/launch/marker.h"

#include <algorithm>

#include "spank_plugin/launch/text.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMaxMarkerText = 16'384;
constexpr std::size_t kMaxNames = 256;

}  // namespace

std::string format_marker(const Marker& marker) {
  std::string text = marker.step + ":";
  for (std::size_t i = 0; i < marker.names.size(); ++i)
    text += (i == 0 ? "" : ",") + marker.names[i];
  return text + ":" + marker.reserved_ports;
}

std::optional<Marker> parse_marker(std::string_view text) {
  if (text.size() > kMaxMarkerText) return std::nullopt;
  const auto fields = split(text, ':');
  if (fields.size() != 3 || fields[0].empty()) return std::nullopt;
  Marker marker{std::string(fields[0]), {}, std::string(fields[2])};
  if (!fields[1].empty()) {
    for (const auto name : split(fields[1], ',')) marker.names.emplace_back(name);
  }
  if (marker.names.size() > kMaxNames) return std::nullopt;
  return marker;
}

Inherited::Inherited(EnvLookup environment, std::string step)
    : environment_(std::move(environment)), step_(std::move(step)) {
  if (const auto text = environment_(variable::kMarker)) marker_ = parse_marker(*text);
}

bool Inherited::is_marked(const std::string& name) const {
  return marker_ &&
         std::find(marker_->names.begin(), marker_->names.end(), name) != marker_->names.end();
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
