// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/node/infiniband_port.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "spank_plugin/fabric/files/attribute.h"

namespace ddp::fabric {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxDevices = 256;
constexpr std::size_t kMaxPorts = 256;
constexpr std::size_t kMaxGids = 1024;

// Parses a name that is a number of at most six digits, such as a port or a GID index.
std::optional<int> number(std::string_view name) {
  int value = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
  if (error != std::errc() || end != name.data() + name.size() || name.size() > 6) {
    return std::nullopt;
  }
  return value;
}

// Returns the word after the number in "4: ACTIVE".
std::string word_after_number(const std::optional<std::string>& text) {
  if (!text) return {};
  const std::size_t colon = text->find(':');
  if (colon == std::string::npos) return *text;
  const std::size_t first = text->find_first_not_of(' ', colon + 1);
  return first == std::string::npos ? std::string() : text->substr(first);
}

// Parses "400 Gb/sec (4X NDR)" and "2.5 Gb/sec (1X SDR)". Zero means no link. An infinite or absurd
// rate is none: beside it, all other ports would be slow.
std::optional<double> leading_rate(std::string_view text) {
  constexpr double kHighest = 1e5;
  double rate = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc() || !(rate > 0.0 && rate <= kHighest)) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  return unit.starts_with(" Gb/s") ? std::optional(rate) : std::nullopt;
}

std::optional<int> read_lid(const fs::path& file) {
  const auto value = read_integer(file);
  if (!value || *value < 0 || *value > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*value);
}

bool is_unused(std::string_view gid) {
  return gid.find_first_not_of("0:") == std::string_view::npos;
}

// Lists the names that are numbers, in numeric order.
std::vector<int> list_numbers(const fs::path& directory, std::size_t most) {
  std::vector<int> numbers;
  for (const auto& name : list_names(directory, most)) {
    if (const auto value = number(name)) numbers.push_back(*value);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// A table has 256 or more entries, typically with four in use. The kernel fills the lowest free
// entry, so a long run of unused entries marks the end. Reading all entries would cost milliseconds
// per node.
std::vector<Gid> read_gids(const fs::path& port) {
  constexpr int kMaxGap = 32;
  std::vector<Gid> gids;
  int unused = 0;
  for (const int index : list_numbers(port / "gids", kMaxGids)) {
    const std::string name = std::to_string(index);
    const auto address = read_attribute(port / "gids" / name);
    if (!address || is_unused(*address)) {
      if (++unused == kMaxGap) break;
      continue;
    }
    unused = 0;
    gids.push_back({index, *address,
                    read_attribute(port / "gid_attrs" / "types" / name).value_or(""),
                    read_attribute(port / "gid_attrs" / "ndevs" / name).value_or("")});
  }
  return gids;
}

InfinibandPort read_port(const fs::path& device, int port_number) {
  const fs::path port = device / "ports" / std::to_string(port_number);
  InfinibandPort result;
  result.device = device.filename().string();
  result.port = port_number;
  result.link_layer = read_attribute(port / "link_layer").value_or("");
  result.state = word_after_number(read_attribute(port / "state"));
  result.phys_state = word_after_number(read_attribute(port / "phys_state"));
  result.rate_text = read_attribute(port / "rate").value_or("");
  result.rate_gbps = leading_rate(result.rate_text);
  result.lid = read_lid(port / "lid");
  result.sm_lid = read_lid(port / "sm_lid");
  result.gids = read_gids(port);
  result.bus_address = read_link_name(device / "device").value_or("");
  result.driver = read_link_name(device / "device" / "driver").value_or("");
  const auto node = read_integer(device / "device" / "numa_node");
  if (node && *node >= 0 && *node < 65536) result.numa_node = static_cast<int>(*node);
  result.board = read_attribute(device / "board_id").value_or("");
  result.firmware = read_attribute(device / "fw_ver").value_or("");
  result.node_type = word_after_number(read_attribute(device / "node_type"));
  result.carrier_interface = read_attribute(device / "parent").value_or("");
  result.physical_function = read_link_name(device / "device" / "physfn").value_or("");
  return result;
}

}  // namespace

std::vector<InfinibandPort> read_infiniband_ports(const fs::path& sys) {
  const fs::path dir = sys / "class" / "infiniband";
  std::vector<InfinibandPort> ports;
  for (const auto& device : list_names(dir, kMaxDevices)) {
    for (const int port : list_numbers(dir / device / "ports", kMaxPorts)) {
      ports.push_back(read_port(dir / device, port));
    }
  }
  return ports;
}

std::string_view foreign_protocol(const InfinibandPort& port) noexcept {
  if (port.node_type == "RNIC") return "iWARP";
  return port.node_type.starts_with("usNIC") ? "usNIC" : "";
}

std::string name_of(const InfinibandPort& port) {
  return port.device + ":" + std::to_string(port.port);
}

}  // namespace ddp::fabric
