// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/own_facts.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <system_error>

#include "base/text.h"
#include "base/text_file.h"

namespace ddp::check {
namespace {

namespace fs = std::filesystem;
using Facts = std::map<std::string, std::string>;

// Length limit of texts from drivers, which appear in the reports of all nodes.
constexpr std::size_t kMaxCharacters = 80;
constexpr std::size_t kMaxDirectories = 64;
constexpr std::size_t kMaxDevices = 64;
constexpr std::size_t kMaxOsReleaseBytes = 4096;

constexpr std::array kModules{"nvidia",  "nvidia_peermem", "mlx5_core", "ib_core", "efa",
                              "bnxt_re", "irdma",          "hfi1",      "cxi_core"};
constexpr std::array kLibraries{"libnccl.so.2",    "libmpi.so.40",         "libucp.so.0",
                                "libfabric.so.1",  "libibverbs.so.1",      "libcuda.so.1",
                                "libcudart.so.12", "libhdf5_serial.so.103"};

void add_first_line(Facts& facts, const std::string& name, const fs::path& file) {
  const auto text = read_text(file, kMaxCharacters);
  if (text && !text->empty()) facts[name] = sanitize_first_line(*text, kMaxCharacters);
}

void add_machine(Facts& facts) {
  utsname names{};
  if (uname(&names) == 0) facts["kernel"] = fmt::format("{} {}", names.release, names.machine);
  facts["cpus"] = fmt::format("{}", sysconf(_SC_NPROCESSORS_ONLN));
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  const double gibibytes = pages * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / 0x1p30;
  facts["memory_GiB"] = fmt::format("{:.0f}", gibibytes);
  facts["libc"] = gnu_get_libc_version();
}

// PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"; see os-release(5).
void add_system(Facts& facts, const fs::path& root) {
  constexpr std::string_view kKey = "PRETTY_NAME=";
  const auto text = read_text(root / "etc/os-release", kMaxOsReleaseBytes);
  if (!text) return;
  const auto line = text->starts_with(kKey) ? 0 : text->find(fmt::format("\n{}", kKey));
  if (line == text->npos) return;
  std::string_view value = std::string_view(*text).substr(text->find('=', line) + 1);
  value = value.substr(0, value.find('\n'));
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
    value = value.substr(1, value.size() - 2);
  facts["system"] = sanitize_first_line(value, kMaxCharacters);
}

void add_firmware(Facts& facts, const fs::path& root) {
  std::error_code error;
  std::size_t devices = 0;
  for (fs::directory_iterator entry(root / "sys/class/infiniband", error), end;
       !error && entry != end && devices < kMaxDevices; entry.increment(error), ++devices) {
    add_first_line(facts,
                   fmt::format("firmware.{}", sanitize_first_line(entry->path().filename().native(),
                                                                  kMaxCharacters)),
                   entry->path() / "fw_ver");
  }
}

// Finds "libnccl.so.2" as the loader does: in the first directory that contains it.
void add_library(Facts& facts, std::string_view name, const std::vector<fs::path>& directories) {
  for (const auto& directory : directories) {
    std::error_code error;
    const fs::path file = fs::canonical(directory / name, error);
    if (error) continue;
    facts[fmt::format("library.{}", name.substr(0, name.find('.')))] =
        sanitize_first_line(file.filename().native(), kMaxCharacters);
    return;
  }
}

}  // namespace

FactSources fact_sources(const Environment& environment) {
  FactSources sources;
  const std::string path = environment("LD_LIBRARY_PATH").value_or("");
  for (const std::string_view directory : split(path, ':', kMaxDirectories))
    if (!directory.empty()) sources.library_directories.emplace_back(directory);
  for (const char* directory : {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu",
                                "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    sources.library_directories.emplace_back(directory);
  }
  return sources;
}

Facts own_facts(const FactSources& sources) {
  Facts facts;
  add_machine(facts);
  add_system(facts, sources.root);
  for (const char* module : kModules) {
    add_first_line(facts, fmt::format("driver.{}", module),
                   sources.root / "sys/module" / module / "version");
  }
  add_firmware(facts, sources.root);
  for (const char* library : kLibraries) add_library(facts, library, sources.library_directories);
  return facts;
}

}  // namespace ddp::check
