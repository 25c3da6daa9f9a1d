// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fabric/machine.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace ddp::test {
namespace {

using fabric::IpAddress;

constexpr const char* kMachines = SLURM_DDP_SOURCE_DIR "/tests/unit/fabric/machines";

struct Network {
  IpAddress address;
  int bits = 0;
};

Network parse_network(const std::string& text) {
  if (text == "default") return {};
  if (text == "default6") return {IpAddress{true, {}}, 0};
  const std::size_t slash = text.find('/');
  const auto address = fabric::parse_ip_address(text.substr(0, slash));
  if (!address || slash == std::string::npos) throw std::runtime_error("no network: " + text);
  return {*address, std::stoi(text.substr(slash + 1))};
}

std::string format_v4_route(const std::string& interface, const Network& network, unsigned metric) {
  std::uint32_t destination = 0;
  std::memcpy(&destination, network.address.bytes.data(), sizeof destination);
  IpAddress mask_bytes;
  for (int bit = 0; bit < network.bits; ++bit) {
    mask_bytes.bytes[static_cast<std::size_t>(bit / 8)] |=
        static_cast<std::uint8_t>(0x80 >> (bit % 8));
  }
  std::uint32_t mask = 0;
  std::memcpy(&mask, mask_bytes.bytes.data(), sizeof mask);
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "%s\t%08X\t00000000\t0001\t0\t0\t%u\t%08X\t0\t0\t0",
                interface.c_str(), destination, metric, mask);
  return line.data();
}

std::string format_v6_route(const std::string& interface, const Network& network, unsigned metric) {
  std::string digits;
  for (const auto byte : network.address.bytes) {
    std::array<char, 4> two{};
    std::snprintf(two.data(), two.size(), "%02x", unsigned{byte});
    digits += two.data();
  }
  const std::string zero(32, '0');
  std::array<char, 320> line{};
  std::snprintf(line.data(), line.size(), "%s %02x %s 00 %s %08x 00000001 00000000 00000001 %8s",
                digits.c_str(), static_cast<unsigned>(network.bits), zero.c_str(), zero.c_str(),
                metric, interface.c_str());
  return line.data();
}

struct Edit {
  std::string before;
  std::string after;
};
constexpr std::string_view kLike = "like ";
constexpr std::string_view kReplace = "replace ";
constexpr std::string_view kArrow = " -> ";

// All edits at once, so that two names can be exchanged.
std::string edited(std::string_view text, const std::vector<Edit>& edits) {
  std::string result;
  while (!text.empty()) {
    const auto edit = std::find_if(edits.begin(), edits.end(), [text](const Edit& one) {
      return text.starts_with(one.before);
    });
    result += edit == edits.end() ? std::string(1, text.front()) : edit->after;
    text.remove_prefix(edit == edits.end() ? 1 : edit->before.size());
  }
  return result;
}

// Removes the lines of addresses and routes from the text, and adds the routing files.
std::string make_tree(std::string_view text, std::vector<fabric::InterfaceAddress>& addresses) {
  std::string tree;
  std::string v4 =
      "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT";
  std::string v6;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, interface, network;
    words >> word;
    if (word != "address" && word != "route") {
      tree += line + "\n";
      continue;
    }
    words >> interface >> network;
    const Network parsed = parse_network(network);
    unsigned metric = 0;
    words >> metric;
    if (word == "address") {
      addresses.push_back({interface, parsed.address, parsed.bits});
    } else if (parsed.address.is_v6) {
      v6 += format_v6_route(interface, parsed, metric) + "\\n";
    } else {
      v4 += "\\n" + format_v4_route(interface, parsed, metric);
    }
  }
  return tree + "proc/net/route = " + v4 + "\nproc/net/ipv6_route = " + v6 + "\n";
}

// A node with RDMA ports has their device files, unless the text defines the directory's contents.
std::string with_device_files(std::string tree) {
  const bool has_ports = tree.find("sys/class/infiniband/") != std::string::npos;
  if (has_ports && tree.find("dev/infiniband/") == std::string::npos) {
    tree += "dev/infiniband/uverbs0 = \n";
  }
  return tree;
}

}  // namespace

Machine::Machine(std::string_view text) : tree_(with_device_files(make_tree(text, addresses_))) {}

fabric::Node Machine::read() const {
  return read_node({root(), root() / "home", {}}, addresses_);
}

std::string machine_text(const std::string& name) {
  std::ifstream file(std::filesystem::path(kMachines) / (name + ".txt"));
  if (!file) throw std::runtime_error("no machine " + name);
  std::string original, rest;
  std::vector<Edit> edits;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kLike)) {
      original = machine_text(line.substr(kLike.size()));
    } else if (line.starts_with(kReplace)) {
      const std::size_t arrow = line.find(kArrow);
      edits.push_back({line.substr(kReplace.size(), arrow - kReplace.size()),
                       line.substr(arrow + kArrow.size())});
    } else {
      rest += line + "\n";
    }
  }
  return edited(original, edits) + rest;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kMachines)) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ddp::test
