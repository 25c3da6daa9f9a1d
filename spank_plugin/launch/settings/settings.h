// SPDX-License-Identifier: Apache-2.0
// The requested settings of a step, merged from all sources: built-in defaults, the site's
// plugstack.conf, the user's SLURM_DDP, the command line. Later sources override earlier ones, item
// by item.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/launch/settings/spec.h"
#include "spank_plugin/launch/step/port_ranges.h"

namespace ddp::launch {

enum class Origin { built_in, site, environment, command_line };

// Returns "built in", "plugstack.conf", "SLURM_DDP" or "--ddp".
std::string_view origin_name(Origin origin) noexcept;

template <typename T>
struct Chosen {
  T value{};
  Origin origin = Origin::built_in;

  bool operator==(const Chosen&) const = default;
};

struct Settings {
  Chosen<Mode> mode{Mode::off, Origin::built_in};
  std::optional<ExplainFormat> explain;
  bool verbose = false;
  std::optional<Chosen<std::string>> master_addr;
  std::optional<Chosen<std::uint16_t>> master_port;
  Chosen<std::string> addr_suffix{"", Origin::built_in};
  // The range of computed ports. It must be outside the range that the kernel assigns to outgoing
  // connections, by default 32768-60999 (net.ipv4.ip_local_port_range).
  Chosen<PortRange> computed_ports{{61'000, 65'535}, Origin::built_in};
  Chosen<Order> order{Order::slurm, Origin::built_in};
  Chosen<ThreadPolicy> threads{};
  Chosen<GpuPolicy> gpus{GpuPolicy::keep, Origin::built_in};
  Chosen<LocalRankMeaning> local_rank{LocalRankMeaning::node, Origin::built_in};
  std::optional<Chosen<Rendezvous>> rendezvous;  // nullopt to choose the one that fits
  std::optional<Chosen<std::string>> agents;     // see Spec
  std::optional<Chosen<std::uint32_t>> restarts;
  std::optional<Chosen<std::string>> store;
  Chosen<bool> tf_config{false, Origin::built_in};
  Chosen<std::string> fabric{"auto", Origin::built_in};
  Chosen<UcxPolicy> ucx{UcxPolicy::keep, Origin::built_in};
  Chosen<Watch> watch{Watch::off, Origin::built_in};
  std::optional<Chosen<std::uint32_t>> watch_stall;  // seconds; see stall_limit()

  bool is_on() const noexcept { return mode.value != Mode::off; }

  // False if only the site's default turned the mode on. A step that cannot be planned is then not
  // the user's concern, and runs as it would without the plugin.
  bool is_requested() const noexcept {
    return is_on() && (mode.origin == Origin::environment || mode.origin == Origin::command_line);
  }

  // How long no rank may make progress before something happens.
  std::chrono::seconds stall_limit() const noexcept {
    if (watch_stall) return std::chrono::seconds(watch_stall->value);
    return watch.value == Watch::end ? std::chrono::minutes(10) : std::chrono::seconds(60);
  }

  bool operator==(const Settings&) const = default;
};

// Merges a SPEC over the settings. A command line without a mode word (bare --ddp, --ddp=verbose)
// turns the mode on. The same SPEC in the environment only changes the behavior of a step whose
// mode is on for another reason.
void apply(Settings& settings, const Spec& spec, Origin origin);

// Returns the arguments that plugstack.conf may give to the plugin, with descriptions for display.
std::span<const SpecItem> site_arguments() noexcept;

// Merges the arguments over the settings. A mistake in plugstack.conf must never fail a step or
// drain a node: a wrong argument is left out and reported in the returned lines.
std::vector<std::string> apply_site_arguments(Settings& settings,
                                              std::span<const std::string_view> arguments);

// Converts settings to one line of text and back, to pass srun's decision to every node of the step
// unchanged: all nodes must derive the same port, so none may read its own configuration.
// decode_settings throws LaunchError for a text that encode_settings does not write.
std::string encode_settings(const Settings& settings);
Settings decode_settings(std::string_view text);

// Returns every setting with its origin: "mode=rank (--ddp)", "order=slurm (built in)", ...
std::vector<std::string> describe_settings(const Settings& settings);

}  // namespace ddp::launch
