// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/traffic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "spank_plugin/fabric/files/attribute.h"

namespace ddp::check {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxCounted = 1024;
constexpr std::uint64_t kMinCarried = std::uint64_t{1} << 20;
constexpr std::uint64_t kPortWord = 4;  // InfiniBand counts words of four bytes

// The sum of two counters; nullopt if one cannot be read.
std::optional<std::uint64_t> sum_of(const fs::path& directory, const char* one, const char* other) {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  if (!(std::ifstream(directory / one) >> first) || !(std::ifstream(directory / other) >> second)) {
    return std::nullopt;
  }
  return first + second;
}

int remember(dl_phdr_info* info, std::size_t /*size*/, void* files) {
  if (info->dlpi_name != nullptr) {
    static_cast<std::vector<std::string>*>(files)->emplace_back(info->dlpi_name);
  }
  return 0;
}

// "tcp" from ".../mca_btl_tcp.so" for the kind "btl".
std::optional<std::string> module_of(const std::string& kind, std::string_view file) {
  const std::string begin = fmt::format("/mca_{}_", kind);
  const auto at = file.rfind(begin);
  const auto end = file.find(".so", at == file.npos ? 0 : at);
  if (at == file.npos || end == file.npos) return std::nullopt;
  return std::string(file.substr(at + begin.size(), end - at - begin.size()));
}

}  // namespace

Traffic read_traffic(const fs::path& sys) {
  Traffic traffic;
  for (const auto& name : fabric::list_names(sys / "class/net", kMaxCounted)) {
    const auto bytes = sum_of(sys / "class/net" / name / "statistics", "rx_bytes", "tx_bytes");
    if (bytes) traffic[name] = *bytes;
  }
  for (const auto& device : fabric::list_names(sys / "class/infiniband", kMaxCounted)) {
    const fs::path ports = sys / "class/infiniband" / device / "ports";
    for (const auto& port : fabric::list_names(ports, kMaxCounted)) {
      const auto words = sum_of(ports / port / "counters", "port_rcv_data", "port_xmit_data");
      if (words) traffic[fmt::format("{}:{}", device, port)] = kPortWord * *words;
      if (traffic.size() >= kMaxCounted) return traffic;
    }
  }
  return traffic;
}

std::vector<std::string> carriers(const Traffic& before, const Traffic& after) {
  std::vector<std::pair<std::uint64_t, std::string>> carried;
  for (const auto& [device, bytes] : after) {
    const auto old = before.find(device);
    if (old == before.end() || bytes < old->second + kMinCarried) continue;
    carried.emplace_back(bytes - old->second, device);
  }
  std::sort(carried.rbegin(), carried.rend());
  std::vector<std::string> devices;
  for (const auto& [bytes, device] : carried) {
    if (bytes >= carried.front().first / 10) devices.push_back(device);
  }
  return devices;
}

bool is_rdma_port(const std::string& device) {
  const auto colon = device.rfind(':');  // "eth0:1" is an alias, not a kernel device
  return colon != std::string::npos;
}

std::string modules_in(const std::vector<std::string>& files) {
  std::string text;
  for (const char* kind : {"pml", "mtl", "btl"}) {
    std::set<std::string> modules;
    for (const auto& file : files) {
      if (auto name = module_of(kind, file)) modules.insert(std::move(*name));
    }
    if (modules.empty()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, fmt::join(modules, " "));
  }
  return text;
}

std::vector<std::string> loaded_files() {
  std::vector<std::string> files;
  dl_iterate_phdr(remember, &files);
  return files;
}

}  // namespace ddp::check
