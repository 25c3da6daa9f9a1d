// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/gpu/nvml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/check/node/gpu/gpu_judgment.h"
#include "ddp_runtime/gpu/nvml.h"

namespace ddp::check {
namespace {

using nvml::Code;
using nvml::Device;
using nvml::Functions;
using nvml::words_of;

constexpr unsigned kMaxLinks = 36;
constexpr unsigned kMaxGpus = 64;
constexpr unsigned kMaxProcesses = 256;
constexpr unsigned kMaxMigDevices = 64;

// Notes in `gpu` that it needs a reset, whichever question the driver answers so. A missing
// function leaves a reading empty, because the library's list of missing functions reports it.
GpuReading reading(GpuFacts& gpu, Code code, std::uint64_t value) {
  if (code == nvml::kSuccess) return {value, {}};
  if (code == nvml::kNotSupported || code == nvml::kNoSuchFunction) return {};
  if (code == nvml::kGpuIsLost || code == nvml::kResetRequired) gpu.needs_reset = words_of(code);
  return {{}, words_of(code)};
}

// Newer generations of NVLink do not have these counters.
NvLink read_link(const Functions& library, Device device, unsigned number, bool up) {
  NvLink link{number, up, false, 0, 0, 0};
  const auto add = [&](std::uint64_t& sum, int counter) {
    unsigned long long errors = 0;
    if (library.link_errors(device, number, counter, &errors) != nvml::kSuccess) return;
    link.errors_known = true;
    sum += errors;
  };
  add(link.replays, nvml::kLinkReplays);
  add(link.recoveries, nvml::kLinkRecoveries);
  add(link.crc_errors, nvml::kLinkFlitErrors);
  add(link.crc_errors, nvml::kLinkDataErrors);
  return link;
}

void read_links(const Functions& library, Device device, GpuFacts& gpu) {
  std::uint64_t up = 0;
  std::uint64_t down = 0;
  std::uint64_t to_switch = 0;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    int active = 0;
    const Code code = library.link(device, link, &active);
    if (code == nvml::kNoSuchFunction) return;
    if (code == nvml::kNotSupported || code == nvml::kInvalidArgument) continue;
    if (code != nvml::kSuccess) {
      gpu.links_up = gpu.links_down = reading(gpu, code, 0);
      return;
    }
    ++(active != 0 ? up : down);
    int end = 0;
    const Code known = active != 0 ? library.link_end(device, link, &end) : nvml::kNotSupported;
    to_switch += known == nvml::kSuccess && end == nvml::kSwitch ? 1 : 0;
    gpu.links.push_back(read_link(library, device, link, active != 0));
  }
  if (up + down == 0) return;
  gpu.links_up = {up, {}};
  gpu.links_down = {down, {}};
  gpu.links_to_switch = {to_switch, {}};
}

void read_memory(const Functions& library, Device device, GpuFacts& gpu) {
  nvml::Memory memory{};
  const Code code = library.memory(device, &memory);
  gpu.memory_total = reading(gpu, code, memory.total);
  gpu.memory_used = reading(gpu, code, memory.used);
  std::array<nvml::Process, kMaxProcesses> list{};
  unsigned count = kMaxProcesses;
  const Code listed = library.processes(device, &count, list.data());
  gpu.processes_known =
      reading(gpu, listed == nvml::kInsufficientSize ? nvml::kSuccess : listed, count);
  if (listed != nvml::kSuccess) return;
  for (unsigned i = 0; i < std::min(count, kMaxProcesses); ++i) {
    gpu.processes.push_back(static_cast<int>(list[i].pid));
  }
}

void read_memory_errors(const Functions& library, Device device, GpuFacts& gpu) {
  const auto errors = [&](int kind, int since) {
    unsigned long long number = 0;
    const Code code = library.ecc(device, kind, since, &number);
    return reading(gpu, code, number);
  };
  gpu.uncorrected = errors(nvml::kUncorrected, nvml::kSinceDriverLoad);
  gpu.uncorrected_ever = errors(nvml::kUncorrected, nvml::kEver);
  gpu.corrected = errors(nvml::kCorrected, nvml::kSinceDriverLoad);
  int pending = 0;
  const Code pages = library.pages(device, &pending);
  gpu.pages_pending = reading(gpu, pages, pending != 0 ? 1 : 0);
  std::array<unsigned, 4> rows{};  // corrected, uncorrected, pending, failed
  const Code remapped = library.rows(device, &rows[0], &rows[1], &rows[2], &rows[3]);
  gpu.rows_pending = reading(gpu, remapped, rows[2]);
  gpu.rows_failed = reading(gpu, remapped, rows[3]);
}

// Older drivers do not know this field, which is no error.
GpuReading read_recovery(const Functions& library, Device device) {
  nvml::FieldValue field{};
  field.field = nvml::kRecoveryActionField;
  const Code code = library.fields(device, 1, &field);
  if (code != nvml::kSuccess || field.code != nvml::kSuccess) return {};
  return {field.value, {}};
}

// A fault that shows only for a moment must not drain a node, so a fault is read again.
void read_throttle(const Functions& library, Device device, GpuFacts& gpu) {
  constexpr int kThrottleReadings = 4;
  constexpr std::chrono::milliseconds kPause{20};
  for (int i = 0; i < kThrottleReadings; ++i) {
    unsigned long long bits = 0;
    const Code code = library.throttle(device, &bits);
    const GpuReading read = reading(gpu, code, bits);
    if (i == 0 || !read.value) gpu.throttle = gpu.throttle_lasting = read;
    if (!read.value) return;
    *gpu.throttle.value |= bits;
    *gpu.throttle_lasting.value &= bits;
    if (!is_throttled_by_a_fault(*gpu.throttle_lasting.value)) return;
    if (i + 1 < kThrottleReadings) std::this_thread::sleep_for(kPause);
  }
}

void read_clocks(const Functions& library, Device device, GpuFacts& gpu) {
  unsigned clock = 0;
  const Code now = library.clock(device, nvml::kSmClock, &clock);
  gpu.sm_clock = reading(gpu, now, clock);
  const Code most = library.clock_max(device, nvml::kSmClock, &clock);
  gpu.sm_clock_max = reading(gpu, most, clock);
  nvml::Utilization used{};
  const Code code = library.utilization(device, &used);
  gpu.utilization = reading(gpu, code, used.gpu);
}

void read_pcie(const Functions& library, Device device, GpuFacts& gpu) {
  const auto read = [&](const nvml::Function<Device, unsigned*>& function) {
    unsigned number = 0;
    const Code code = function(device, &number);
    return reading(gpu, code, number);
  };
  gpu.pcie_generation = read(library.pcie_generation);
  gpu.pcie_generation_max = read(library.pcie_generation_max);
  gpu.pcie_width = read(library.pcie_width);
  gpu.pcie_width_max = read(library.pcie_width_max);
}

void read_mig(const Functions& library, Device device, GpuFacts& gpu) {
  unsigned now = 0;
  unsigned after_reset = 0;
  const Code mode = library.mig(device, &now, &after_reset);
  gpu.mig = reading(gpu, mode, now);
  unsigned most = 0;
  if (!is_divided(gpu) || library.mig_devices_max(device, &most) != nvml::kSuccess) return;
  std::uint64_t seen = 0;
  for (unsigned i = 0; i < std::min(most, kMaxMigDevices); ++i) {
    Device mig_device = nullptr;
    const Code code = library.mig_device(device, i, &mig_device);
    if (code == nvml::kNotFound || code == nvml::kInvalidArgument) continue;
    gpu.mig_devices = reading(gpu, code, ++seen);
    if (!gpu.mig_devices.value) return;
  }
  gpu.mig_devices = {seen, {}};
}

void read_settings(const Functions& library, Device device, GpuFacts& gpu) {
  unsigned on = 0;
  const Code code = library.persistence(device, &on);
  gpu.persistence = reading(gpu, code, on);
}

GpuFacts read_gpu(const Functions& library, unsigned index) {
  GpuFacts gpu;
  gpu.bus_address = fmt::format("GPU {}", index);
  Device device = nullptr;
  const Code code = library.handle(index, &device);
  if (code != nvml::kSuccess) {
    gpu.trouble = words_of(code);
    return gpu;
  }
  std::array<char, 96> name{};
  if (library.name(device, name.data(), name.size() - 1) == nvml::kSuccess) gpu.name = name.data();
  nvml::PciInfo pci{};
  if (library.pci(device, &pci) == nvml::kSuccess) {
    pci.bus_address.back() = '\0';
    gpu.bus_address = pci.bus_address.data();
  }
  read_memory_errors(library, device, gpu);
  gpu.recovery = read_recovery(library, device);
  read_throttle(library, device, gpu);
  read_clocks(library, device, gpu);
  read_pcie(library, device, gpu);
  read_links(library, device, gpu);
  read_mig(library, device, gpu);
  read_settings(library, device, gpu);
  read_memory(library, device, gpu);
  return gpu;
}

void read_pair(const Functions& library, std::size_t first, std::size_t second, NvmlFacts& facts) {
  Device one = nullptr;
  Device other = nullptr;
  for (const std::size_t gpu : {first, second}) {
    if (!facts.gpus[gpu].trouble.empty()) return;
    Device& device = gpu == first ? one : other;
    if (library.handle(static_cast<unsigned>(gpu), &device) != nvml::kSuccess) return;
  }
  GpuPair pair{first, second, {}, {}, {}};
  int distance = 0;
  if (library.distance(one, other, &distance) == nvml::kSuccess && distance >= 0) {
    pair.distance = static_cast<std::uint64_t>(distance);
  }
  const auto status = [&](int capability) {
    int result = 0;
    const Code code = library.peer(one, other, capability, &result);
    return reading(facts.gpus[first], code, static_cast<std::uint64_t>(result));
  };
  pair.access = status(nvml::kPeerRead);
  pair.nvlink = status(nvml::kPeerNvLink);
  facts.pairs.push_back(std::move(pair));
}

void read_gpus(const Functions& library, NvmlFacts& facts) {
  std::array<char, 80> driver{};
  if (library.driver(driver.data(), driver.size() - 1) == nvml::kSuccess)
    facts.driver = driver.data();
  unsigned count = 0;
  if (const Code code = library.count(&count); code != nvml::kSuccess) {
    facts.trouble = words_of(code);
    return;
  }
  for (unsigned i = 0; i < std::min(count, kMaxGpus); ++i)
    facts.gpus.push_back(read_gpu(library, i));
  for (std::size_t first = 0; first < facts.gpus.size(); ++first) {
    for (std::size_t second = first + 1; second < facts.gpus.size(); ++second) {
      read_pair(library, first, second, facts);
    }
  }
}

std::optional<Functions> load_nvml(const std::string& library) {
  try {
    return std::make_optional<Functions>(library);
  } catch (const RuntimeError&) {
    return std::nullopt;
  }
}

}  // namespace

NvmlFacts read_nvml(const std::string& library) {
  NvmlFacts facts;
  const auto functions = load_nvml(library);
  if (!functions) {
    facts.trouble = fmt::format("{} cannot be loaded", library);
    return facts;
  }
  facts.library_found = true;
  facts.not_checked = functions->from.missing();
  if (const Code code = functions->init(); code != nvml::kSuccess) {
    facts.trouble = words_of(code);
    return facts;
  }
  read_gpus(*functions, facts);
  functions->shutdown();
  return facts;
}

PcieObserver::PcieObserver(const std::string& library) {
  try {
    auto functions = std::make_shared<const Functions>(library);
    if (functions->init() == nvml::kSuccess) functions_ = std::move(functions);
  } catch (const RuntimeError&) {
    functions_ = nullptr;
  }
}

std::optional<PcieLink> PcieObserver::pcie_link(const std::string& bus_address) const {
  Device device = nullptr;
  unsigned generation = 0;
  unsigned width = 0;
  if (functions_ == nullptr ||
      functions_->handle_by_address(bus_address.c_str(), &device) != nvml::kSuccess ||
      functions_->pcie_generation(device, &generation) != nvml::kSuccess ||
      functions_->pcie_width(device, &width) != nvml::kSuccess) {
    return std::nullopt;
  }
  return PcieLink{generation, width};
}

}  // namespace ddp::check
