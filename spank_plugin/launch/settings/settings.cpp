// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/settings/settings.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "spank_plugin/launch/step/error.h"

namespace ddp::launch {
namespace {

constexpr std::array<std::string_view, 4> kOriginNames = {"built in", "plugstack.conf", "SLURM_DDP",
                                                          "--ddp"};
constexpr std::uint64_t kLowestSitePort = 1024;

constexpr std::array<SpecItem, 12> kSiteArguments = {{
    {"default", "auto|rank|torchrun|off", "mode of a step without --ddp (off)"},
    {"port_base", "P", "first port for MASTER_PORT if SLURM reserves none (61000)"},
    {"port_count", "N", "number of ports from port_base on (all up to 65535)"},
    {"master_addr", "HOST", "the same MASTER_ADDR for every step (none)"},
    {"addr_suffix", "SUFFIX", "suffix of the node's name on its fast network (none)"},
    {"threads", "auto|off|N", "OMP_NUM_THREADS if the user does not set it (auto)"},
    {"gpus", "keep|shared", "GPUs of its node that each task sees (keep)"},
    {"order", "slurm|packed|switch", "numbering of the ranks (slurm)"},
    {"fabric", "auto|off|NAME", "settings of NCCL, Gloo, UCX for the node's network (auto)"},
    {"verbose", "yes|no", "a line per task instead of one per step (no)"},
    {"watch", "on|report|end|off", "watch the ranks of planned steps (off)"},
    {"watch_stall", "DURATION",
     "how long no rank makes progress until that is said (60s; with watch=end, 10min)"},
}};

// port_base and port_count only make sense together.
struct PortWindow {
  std::optional<std::uint64_t> base;
  std::optional<std::uint64_t> count;
};

template <typename T>
void take(Chosen<T>& setting, const std::optional<T>& requested, Origin origin) {
  if (requested) setting = {*requested, origin};
}

template <typename T>
void take(std::optional<Chosen<T>>& setting, const std::optional<T>& requested, Origin origin) {
  if (requested) setting = {*requested, origin};
}

// Copies the items that the SPEC mentions.
void merge(Settings& settings, const Spec& spec, Origin origin) {
  take(settings.mode, spec.mode, origin);
  if (spec.explain) settings.explain = spec.explain;
  if (spec.verbose) settings.verbose = *spec.verbose;
  take(settings.master_addr, spec.master_addr, origin);
  take(settings.master_port, spec.master_port, origin);
  take(settings.addr_suffix, spec.addr_suffix, origin);
  take(settings.order, spec.order, origin);
  take(settings.threads, spec.threads, origin);
  take(settings.gpus, spec.gpus, origin);
  take(settings.local_rank, spec.local_rank, origin);
  take(settings.rendezvous, spec.rendezvous, origin);
  take(settings.agents, spec.agents, origin);
  take(settings.restarts, spec.restarts, origin);
  take(settings.store, spec.store, origin);
  take(settings.tf_config, spec.tf_config, origin);
  take(settings.fabric, spec.fabric, origin);
  take(settings.ucx, spec.ucx, origin);
  take(settings.watch, spec.watch, origin);
  take(settings.watch_stall, spec.watch_stall, origin);
}

std::uint64_t number_between(std::string_view text, std::uint64_t lowest, std::uint64_t highest) {
  const auto number = parse_decimal(text, highest);
  if (!number || *number < lowest) {
    throw LaunchError("it must be " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return *number;
}

std::string site_argument_names() {
  std::string names;
  for (const auto& argument : kSiteArguments)
    names += (names.empty() ? "" : ", ") + std::string(argument.name);
  return names;
}

void apply_default(Settings& settings, std::string_view value) {
  const Spec spec = parse_spec(value, "default");
  if (!spec.mode || value != word_for(*spec.mode)) {
    throw LaunchError("it must be auto, rank, torchrun or off");
  }
  settings.mode = {*spec.mode, Origin::site};
}

// Throws LaunchError and changes nothing if the argument is wrong.
void apply_site_argument(Settings& settings, PortWindow& window, std::string_view argument) {
  const auto key = argument.substr(0, argument.find('='));
  const auto value = argument.substr(std::min(key.size() + 1, argument.size()));
  const bool known = std::any_of(kSiteArguments.begin(), kSiteArguments.end(),
                                 [key](const SpecItem& item) { return item.name == key; });
  if (!known) throw LaunchError("allowed are " + site_argument_names());
  if (key == "port_base") {
    window.base = number_between(value, kLowestSitePort, 65'535);
  } else if (key == "port_count") {
    window.count = number_between(value, 1, 65'536 - kLowestSitePort);
  } else if (key == "default") {
    apply_default(settings, value);
  } else if (argument.find(',') != std::string_view::npos) {
    throw LaunchError("arguments are separated by spaces");
  } else {
    merge(settings, parse_spec(argument, "value"), Origin::site);
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

[[noreturn]] void fail_decoding(std::string_view text) {
  throw LaunchError("SLURM_DDP_SETTINGS=" + quote_for_display(text) +
                    " was not written by srun's plugin; is it the same version on all machines?");
}

// A setting, written as an item of a SPEC, and its origin.
struct Item {
  std::string text;
  Origin origin = Origin::built_in;
};

// Not allowed in a SPEC: only the site may choose the ports.
constexpr std::string_view kPorts = "ports=";

std::vector<Item> items_of(const Settings& s) {
  const auto pair = [](std::string_view key, std::string_view value) {
    return std::string(key) + "=" + std::string(value);
  };
  std::vector<Item> items = {{std::string(word_for(s.mode.value)), s.mode.origin}};
  if (s.explain) items.push_back({pair("explain", word_for(*s.explain)), Origin::built_in});
  if (s.verbose) items.push_back({"verbose", Origin::built_in});
  if (s.master_addr)
    items.push_back({pair("master_addr", s.master_addr->value), s.master_addr->origin});
  if (s.master_port)
    items.push_back(
        {pair("master_port", std::to_string(s.master_port->value)), s.master_port->origin});
  if (s.addr_suffix.origin != Origin::built_in)
    items.push_back({pair("addr_suffix", s.addr_suffix.value), s.addr_suffix.origin});
  const PortRange& ports = s.computed_ports.value;
  items.push_back(
      {std::string(kPorts) + std::to_string(ports.first) + "-" + std::to_string(ports.last),
       s.computed_ports.origin});
  items.push_back({pair("order", word_for(s.order.value)), s.order.origin});
  items.push_back({pair("threads", word_for(s.threads.value)), s.threads.origin});
  items.push_back({pair("gpus", word_for(s.gpus.value)), s.gpus.origin});
  items.push_back({pair("local_rank", word_for(s.local_rank.value)), s.local_rank.origin});
  if (s.rendezvous)
    items.push_back({pair("rdzv", word_for(s.rendezvous->value)), s.rendezvous->origin});
  if (s.agents) items.push_back({pair("nnodes", s.agents->value), s.agents->origin});
  if (s.restarts)
    items.push_back({pair("restarts", std::to_string(s.restarts->value)), s.restarts->origin});
  if (s.store) items.push_back({pair("store", s.store->value), s.store->origin});
  items.push_back({pair("tf_config", word_for(s.tf_config.value)), s.tf_config.origin});
  items.push_back({pair("fabric", s.fabric.value), s.fabric.origin});
  items.push_back({pair("ucx", word_for(s.ucx.value)), s.ucx.origin});
  if (s.watch.origin != Origin::built_in)
    items.push_back({pair("watch", word_for(s.watch.value)), s.watch.origin});
  if (s.watch_stall)
    items.push_back(
        {pair("watch_stall", std::to_string(s.watch_stall->value) + "s"), s.watch_stall->origin});
  return items;
}

void decode_item(Settings& settings, std::string_view text, std::string_view word) {
  if (word.size() < 3 || word[1] != '/') fail_decoding(text);
  const auto number = parse_decimal(word.substr(0, 1), kOriginNames.size() - 1);
  if (!number) fail_decoding(text);
  const auto origin = static_cast<Origin>(*number);
  const auto item = word.substr(2);
  if (item.starts_with(kPorts)) {
    const auto ranges = parse_port_ranges(item.substr(kPorts.size()), "ports");
    if (ranges.size() != 1) fail_decoding(text);
    settings.computed_ports = {ranges.front(), origin};
  } else {
    merge(settings, parse_spec(item, "SLURM_DDP_SETTINGS"), origin);
  }
}

}  // namespace

std::string_view origin_name(Origin origin) noexcept {
  return kOriginNames[static_cast<std::size_t>(origin)];
}

void apply(Settings& settings, const Spec& spec, Origin origin) {
  merge(settings, spec, origin);
  if (spec.mode == Mode::off) settings.explain.reset();
  if (!spec.mode && (origin == Origin::command_line || spec.explain)) {
    const bool was_on = settings.is_on();
    settings.mode = {was_on ? settings.mode.value : Mode::automatic, origin};
  }
}

std::span<const SpecItem> site_arguments() noexcept {
  return kSiteArguments;
}

std::vector<std::string> apply_site_arguments(Settings& settings,
                                              std::span<const std::string_view> arguments) {
  std::vector<std::string> problems;
  const auto leave_out = [&](std::string_view argument, const LaunchError& error) {
    problems.push_back("plugstack.conf: argument " + quote_for_display(argument) +
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
  std::string text;
  for (const auto& item : items_of(settings)) {
    if (!text.empty()) text += " ";
    text += std::to_string(static_cast<int>(item.origin)) + "/" + item.text;
  }
  return text;
}

Settings decode_settings(std::string_view text) {
  if (text.size() > 4096) fail_decoding(text);
  Settings settings;
  for (const auto word : split(text, ' ')) decode_item(settings, text, word);
  return settings;
}

std::vector<std::string> describe_settings(const Settings& settings) {
  std::vector<std::string> lines;
  for (const auto& item : items_of(settings)) {
    if (item.text.starts_with("explain") || item.text == "verbose") continue;  // handled above
    lines.push_back(item.text + " (" + std::string(origin_name(item.origin)) + ")");
  }
  return lines;
}

}  // namespace ddp::launch
