// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/counters_check.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <optional>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/json/bounded_json.h"
#include "base/text_file.h"

namespace ddp::check {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxCounters = 4096;
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
// Counters of dropped packets are not included, because a full queue drops packets that TCP then
// retransmits.
constexpr std::array kOfInterfaces{"rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors",
                                   "tx_carrier_errors"};
constexpr std::array kOfPorts{
    "symbol_error",    "link_error_recovery",         "link_downed",
    "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors"};

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    entries.push_back(at->path());
  }
  return entries;
}

template <std::size_t N>
void read_into(Counters& counters, const fs::path& directory, const std::string& device,
               const std::array<const char*, N>& names) {
  for (const char* name : names) {
    std::uint64_t value = 0;
    if (std::ifstream(directory / name) >> value && counters.size() < kMaxCounters) {
      counters[fmt::format("{} {}", device, name)] = value;
    }
  }
}

// Returns nullopt if there is no file. Throws RuntimeError if the file cannot be parsed.
std::optional<Counters> read_kept(const std::string& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  const auto text = read_text(file, kMaxFileBytes);
  if (!text) throw RuntimeError("it is not a counter file");
  try {
    return parse_bounded_json_or_null(*text).get<Counters>();
  } catch (const nlohmann::json::exception&) {
    throw RuntimeError("it does not contain counters");
  }
}

// Does not follow symbolic links, because this may run as root in a directory that belongs to
// another user.
void keep(const std::string& file, const Counters& counters) {
  replace_file(file, nlohmann::json(counters).dump(1) + "\n");
}

}  // namespace

Counters read_counters(const fs::path& sys) {
  Counters counters;
  for (const auto& interface : entries_of(sys / "class/net")) {
    if (interface.filename() == "lo") continue;
    read_into(counters, interface / "statistics", interface.filename().string(), kOfInterfaces);
  }
  for (const auto& device : entries_of(sys / "class/infiniband")) {
    for (const auto& port : entries_of(device / "ports")) {
      read_into(counters, port / "counters",
                fmt::format("{}:{}", device.filename().string(), port.filename().string()),
                kOfPorts);
    }
  }
  return counters;
}

Counters counters_of(const Counters& counters, const std::set<std::string>& devices) {
  if (devices.empty()) return counters;
  Counters chosen;
  for (const auto& [name, value] : counters) {
    if (devices.contains(name.substr(0, name.find(' ')))) chosen[name] = value;
  }
  return chosen;
}

std::vector<Finding> evaluate_counters(const Counters& before, const Counters& now,
                                       const std::string& check, const std::string& when) {
  Finding finding{.check = check,
                  .severity = Severity::warning,
                  .unit = "errors",
                  .expected = "none",
                  .rule = "error counters do not grow",
                  .action = "check cable, transceiver and switch port"};
  std::vector<Finding> findings;
  for (const auto& [name, value] : now) {
    const auto old = before.find(name);
    if (old == before.end()) continue;
    const std::uint64_t grown = value < old->second ? value : value - old->second;
    if (grown == 0) continue;
    finding.device = name;
    finding.value = static_cast<double>(grown);
    finding.evidence = fmt::format("more {}, {} in total", when, value);
    findings.push_back(finding);
  }
  if (!findings.empty()) return findings;
  finding.severity = Severity::ok;
  finding.value = 0.0;
  finding.evidence = fmt::format("{} counters, {}", now.size(), when);
  finding.action.clear();
  return {finding};
}

std::vector<Finding> compare_with_kept_counters(const std::string& file, const Counters& now) {
  std::vector<Finding> findings;
  try {
    const auto before = read_kept(file);
    findings =
        evaluate_counters(before.value_or(Counters()), now, "counters", "since the last check");
    if (!before) findings.front().evidence = "no previous values; baseline recorded";
  } catch (const RuntimeError& error) {
    findings = {
        Finding{.check = "counters",
                .device = file,
                .rule = "error counters do not grow",
                .evidence = fmt::format("the previous values cannot be read: {}", error.what()),
                .action = "check what else writes this file; it now holds the new values"}};
  }
  keep(file, now);
  return findings;
}

}  // namespace ddp::check
