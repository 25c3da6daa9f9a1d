#pragma once
// What a step is asked to do, after all who may ask: built-in defaults, the site's plugstack.conf,
// the user's SLURM_DDP, the command line. Later ones win, item by item.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/launch/port_ranges.h"
#include "spank_plugin/launch/spec.h"

namespace ddp::launch {

enum class Origin { built_in, site, environment, command_line };

// "built in", "plugstack.conf", "SLURM_DDP", "--ddp".
std::string_view origin_name(Origin origin) noexcept;

template <typename T>
struct Chosen {
  T value{};
  Origin origin = Origin::built_in;

  bool operator==(const Chosen&) const = default;
};

struct Settings {
  Mode mode = Mode::off;
  bool explain = false;
  bool verbose = false;
  std::optional<Chosen<std::string>> master_addr;
  std::optional<Chosen<std::uint16_t>> master_port;
  // Where computed ports come from. The kernel hands out 32768-60999 for outgoing connections
  // (net.ipv4.ip_local_port_range), so a listener's port must lie outside.
  Chosen<PortRange> computed_ports{{61'000, 65'535}, Origin::built_in};

  bool operator==(const Settings&) const = default;
};

// Puts a SPEC on top. A command line without a mode word turns the mode on (bare --ddp,
// --ddp=verbose); the same SPEC in the environment only changes how a step behaves that is on for
// another reason.
void apply(Settings& settings, const Spec& spec, Origin origin);

// Puts the plugin's arguments in plugstack.conf on top: default=auto|rank|off, master_addr=HOST,
// port_base=P, port_count=N, verbose=yes|no. A mistake there must never end a step or drain a node:
// a wrong argument is left out, and the returned lines say so.
std::vector<std::string> apply_site_arguments(Settings& settings,
                                              std::span<const std::string_view> arguments);

// Settings as one line of text and back, to take srun's decision to every node of the step as it
// is: all nodes must derive the same port, so none may read its own configuration.
// decode_settings throws LaunchError for a text that encode_settings does not write.
std::string encode_settings(const Settings& settings);
Settings decode_settings(std::string_view text);

}  // namespace ddp::launch
