#include "spank_plugin/launch/settings.h"

#include <array>

#include "spank_plugin/launch/error.h"
#include "spank_plugin/launch/text.h"

namespace ddp::launch {
namespace {

constexpr std::array<std::string_view, 4> kOriginNames = {"built in", "plugstack.conf", "SLURM_DDP",
                                                          "--ddp"};
constexpr std::uint64_t kLowestSitePort = 1024;

// port_base and port_count make sense together only.
struct PortWindow {
  std::optional<std::uint64_t> base;
  std::optional<std::uint64_t> count;
};

std::uint64_t number_between(std::string_view text, std::uint64_t lowest, std::uint64_t highest) {
  const auto number = parse_decimal(text, highest);
  if (!number || *number < lowest) {
    throw LaunchError("it must be " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return *number;
}

// Throws LaunchError, with nothing changed, if the argument is wrong.
void apply_site_argument(Settings& settings, PortWindow& window, std::string_view argument) {
  const auto key = argument.substr(0, argument.find('='));
  const auto value = argument.substr(std::min(key.size() + 1, argument.size()));
  if (key == "port_base") {
    window.base = number_between(value, kLowestSitePort, 65'535);
  } else if (key == "port_count") {
    window.count = number_between(value, 1, 65'536 - kLowestSitePort);
  } else if (key == "default") {
    if (value != "auto" && value != "rank" && value != "off") {
      throw LaunchError("it must be auto, rank or off");
    }
    apply(settings, parse_spec(value, "default"), Origin::site);
  } else if (key == "master_addr" || key == "verbose") {
    apply(settings, parse_spec(argument, "value"), Origin::site);
  } else {
    throw LaunchError("allowed are default, master_addr, port_base, port_count, verbose");
  }
}

void apply_window(Settings& settings, const PortWindow& window) {
  if (!window.base && !window.count) return;
  const PortRange& built_in = settings.computed_ports.value;
  const std::uint64_t base = window.base.value_or(built_in.first);
  const std::uint64_t count = window.count.value_or(65'536 - base);
  if (base + count > 65'536) throw LaunchError("port_base + port_count goes beyond port 65535");
  settings.computed_ports = {
      {static_cast<std::uint16_t>(base), static_cast<std::uint16_t>(base + count - 1)},
      Origin::site};
}

// One field of the encoded form: "key=value" or, with an origin, "key=origin/value".
struct Field {
  std::string_view key;
  std::string_view value;
  Origin origin = Origin::built_in;
};

[[noreturn]] void fail_decoding(std::string_view text) {
  throw LaunchError("SLURM_DDP_SETTINGS=" + in_quotes(text) +
                    " was not written by srun's plugin; is it the same version on all machines?");
}

Field decode_field(std::string_view text, std::string_view word) {
  const auto equals = word.find('=');
  const auto slash = word.find('/');
  if (equals == std::string_view::npos || slash != equals + 2) fail_decoding(text);
  const auto origin = parse_decimal(word.substr(equals + 1, 1), kOriginNames.size() - 1);
  if (!origin) fail_decoding(text);
  return {word.substr(0, equals), word.substr(slash + 1), static_cast<Origin>(*origin)};
}

std::string encode_field(std::string_view key, Origin origin, const std::string& value) {
  return std::string(key) + "=" + std::to_string(static_cast<int>(origin)) + "/" + value + " ";
}

void decode_into(Settings& settings, std::string_view text, const Field& field) {
  if (field.key == "master_addr" && is_host_or_address(field.value)) {
    settings.master_addr = {std::string(field.value), field.origin};
  } else if (field.key == "master_port") {
    const auto port = parse_decimal(field.value, 65'535);
    if (!port || *port == 0) fail_decoding(text);
    settings.master_port = {static_cast<std::uint16_t>(*port), field.origin};
  } else if (field.key == "ports") {
    const auto ranges = parse_port_ranges(field.value, "ports");
    if (ranges.size() != 1) fail_decoding(text);
    settings.computed_ports = {ranges.front(), field.origin};
  } else {
    fail_decoding(text);
  }
}

}  // namespace

std::string_view origin_name(Origin origin) noexcept {
  return kOriginNames[static_cast<std::size_t>(origin)];
}

void apply(Settings& settings, const Spec& spec, Origin origin) {
  if (spec.mode) {
    settings.mode = *spec.mode;
    if (*spec.mode == Mode::off) settings.explain = false;
  } else if (origin == Origin::command_line || spec.explain) {
    settings.mode = Mode::rank;
  }
  if (spec.explain) settings.explain = *spec.explain;
  if (spec.verbose) settings.verbose = *spec.verbose;
  if (spec.master_addr) settings.master_addr = {*spec.master_addr, origin};
  if (spec.master_port) settings.master_port = {*spec.master_port, origin};
}

std::vector<std::string> apply_site_arguments(Settings& settings,
                                              std::span<const std::string_view> arguments) {
  std::vector<std::string> problems;
  const auto leave_out = [&](std::string_view argument, const LaunchError& error) {
    problems.push_back("plugstack.conf: argument " + in_quotes(argument) +
                       " is left out: " + error.what());
  };
  PortWindow window;
  for (const auto argument : arguments) {
    try {
      apply_site_argument(settings, window, argument);
    } catch (const LaunchError& error) {
      leave_out(argument, error);
    }
  }
  try {
    apply_window(settings, window);
  } catch (const LaunchError& error) {
    leave_out("port_base, port_count", error);
  }
  return problems;
}

std::string encode_settings(const Settings& settings) {
  std::string text = settings.mode == Mode::off ? "off " : "rank ";
  if (settings.explain) text += "explain ";
  if (settings.verbose) text += "verbose ";
  if (const auto& addr = settings.master_addr)
    text += encode_field("master_addr", addr->origin, addr->value);
  if (const auto& port = settings.master_port) {
    text += encode_field("master_port", port->origin, std::to_string(port->value));
  }
  const auto& [ports, origin] = settings.computed_ports;
  text +=
      encode_field("ports", origin, std::to_string(ports.first) + "-" + std::to_string(ports.last));
  text.pop_back();
  return text;
}

Settings decode_settings(std::string_view text) {
  if (text.size() > 4096) fail_decoding(text);
  Settings settings;
  for (const auto word : split(text, ' ')) {
    if (word == "rank") {
      settings.mode = Mode::rank;
    } else if (word == "explain") {
      settings.explain = true;
    } else if (word == "verbose") {
      settings.verbose = true;
    } else if (word != "off") {
      decode_into(settings, text, decode_field(text, word));
    }
  }
  return settings;
}

}  // namespace ddp::launch
