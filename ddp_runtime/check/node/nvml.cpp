// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/nvml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/errors.h"
#include "ddp_runtime/check/dynamic_library.h"

namespace ddp::check {
namespace {

// The part of NVML's binary interface that this file uses, according to its documentation.
using Code = int;
constexpr Code kSuccess = 0;
constexpr Code kInvalidArgument = 2;  // also returned for a link that this model does not have
constexpr Code kNotSupported = 3;
constexpr Code kInsufficientSize = 7;
constexpr int kUncorrected = 1;
constexpr int kSinceDriverLoad = 0;
constexpr unsigned kMaxLinks = 18;
constexpr unsigned kMaxGpus = 64;
constexpr unsigned kMaxProcesses = 256;

using Device = void*;
struct PciInfo {
  std::array<char, 16> legacy_bus_address;
  std::array<unsigned, 5> domain_bus_device_ids;
  std::array<char, 32> bus_address;
};
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

// A function of the library. Returns "not supported" if this version does not have the function.
template <class... Arguments>
class Function {
 public:
  Function(const DynamicLibrary& library, const char* name)
      : pointer_(reinterpret_cast<Pointer>(library.find(name))) {}
  Code operator()(Arguments... arguments) const {
    return pointer_ == nullptr ? kNotSupported : pointer_(arguments...);
  }

 private:
  using Pointer = Code (*)(Arguments...);
  Pointer pointer_;
};

struct Nvml {
  explicit Nvml(const std::string& library) : from(library) {}
  const DynamicLibrary from;  // first: the functions below are looked up in it
  Function<> init{from, "nvmlInit_v2"};
  Function<> shutdown{from, "nvmlShutdown"};
  Function<char*, unsigned> driver{from, "nvmlSystemGetDriverVersion"};
  Function<unsigned*> count{from, "nvmlDeviceGetCount_v2"};
  Function<unsigned, Device*> handle{from, "nvmlDeviceGetHandleByIndex_v2"};
  Function<Device, char*, unsigned> name{from, "nvmlDeviceGetName"};
  Function<Device, PciInfo*> pci{from, "nvmlDeviceGetPciInfo_v3"};
  Function<Device, int, int, unsigned long long*> ecc{from, "nvmlDeviceGetTotalEccErrors"};
  Function<Device, unsigned long long*> throttle{from, "nvmlDeviceGetCurrentClocksThrottleReasons"};
  Function<Device, int*> pages{from, "nvmlDeviceGetRetiredPagesPendingStatus"};
  Function<Device, unsigned*, unsigned*, unsigned*, unsigned*> rows{from,
                                                                    "nvmlDeviceGetRemappedRows"};
  Function<Device, unsigned, int*> link{from, "nvmlDeviceGetNvLinkState"};
  Function<Device, Memory*> memory{from, "nvmlDeviceGetMemoryInfo"};
  Function<Device, unsigned*, Process*> processes{from, "nvmlDeviceGetComputeRunningProcesses_v3"};
};

std::string words_of(Code code) {
  switch (code) {
    case 4:
      return "no permission";
    case 9:
      return "the driver is not loaded";
    case 10:
      return "the driver did not answer in time";
    case 15:
      return "the GPU is lost: it fell off the bus";
    case 16:
      return "the GPU must be reset";
    case 18:
      return "driver and library have different versions";
    default:
      return fmt::format("NVML error {}", code);
  }
}

GpuReading reading(Code code, std::uint64_t value) {
  if (code == kSuccess) return {value, {}};
  if (code == kNotSupported) return {};
  return {{}, words_of(code)};
}

void read_links(const Nvml& nvml, Device device, GpuFacts& gpu) {
  std::uint64_t up = 0;
  std::uint64_t down = 0;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    int active = 0;
    const Code code = nvml.link(device, link, &active);
    if (code == kNotSupported || code == kInvalidArgument) continue;
    if (code != kSuccess) {
      gpu.links_up = gpu.links_down = reading(code, 0);
      return;
    }
    ++(active != 0 ? up : down);
  }
  if (up + down == 0) return;
  gpu.links_up = {up, {}};
  gpu.links_down = {down, {}};
}

void read_memory(const Nvml& nvml, Device device, GpuFacts& gpu) {
  Memory memory{};
  const Code code = nvml.memory(device, &memory);
  gpu.memory_total = reading(code, memory.total);
  gpu.memory_used = reading(code, memory.used);
  std::array<Process, kMaxProcesses> list{};
  unsigned count = kMaxProcesses;
  const Code listed = nvml.processes(device, &count, list.data());
  gpu.processes_known = reading(listed == kInsufficientSize ? kSuccess : listed, count);
  if (listed != kSuccess) return;
  for (unsigned i = 0; i < std::min(count, kMaxProcesses); ++i) {
    gpu.processes.push_back(static_cast<int>(list[i].pid));
  }
}

GpuFacts read_gpu(const Nvml& nvml, unsigned index) {
  GpuFacts gpu;
  gpu.bus_address = fmt::format("GPU {}", index);
  Device device = nullptr;
  const Code code = nvml.handle(index, &device);
  if (code != kSuccess) {
    gpu.trouble = words_of(code);
    return gpu;
  }
  std::array<char, 96> name{};
  if (nvml.name(device, name.data(), name.size() - 1) == kSuccess) gpu.name = name.data();
  PciInfo pci{};
  if (nvml.pci(device, &pci) == kSuccess) {
    pci.bus_address.back() = '\0';
    gpu.bus_address = pci.bus_address.data();
  }
  unsigned long long number = 0;
  const Code ecc = nvml.ecc(device, kUncorrected, kSinceDriverLoad, &number);
  gpu.uncorrected = reading(ecc, number);
  const Code throttle = nvml.throttle(device, &number);
  gpu.throttle = reading(throttle, number);
  int pending = 0;
  const Code pages = nvml.pages(device, &pending);
  gpu.pages_pending = reading(pages, pending != 0 ? 1 : 0);
  std::array<unsigned, 4> rows{};  // corrected, uncorrected, pending, failed
  const Code remapped = nvml.rows(device, &rows[0], &rows[1], &rows[2], &rows[3]);
  gpu.rows_pending = reading(remapped, rows[2]);
  gpu.rows_failed = reading(remapped, rows[3]);
  read_links(nvml, device, gpu);
  read_memory(nvml, device, gpu);
  return gpu;
}

void read_gpus(const Nvml& nvml, NvmlFacts& facts) {
  std::array<char, 80> driver{};
  if (nvml.driver(driver.data(), driver.size() - 1) == kSuccess) facts.driver = driver.data();
  unsigned count = 0;
  if (const Code code = nvml.count(&count); code != kSuccess) {
    facts.trouble = words_of(code);
    return;
  }
  for (unsigned i = 0; i < std::min(count, kMaxGpus); ++i) facts.gpus.push_back(read_gpu(nvml, i));
}

std::optional<Nvml> load_nvml(const std::string& library) {
  try {
    return std::make_optional<Nvml>(library);
  } catch (const RuntimeError&) {
    return std::nullopt;
  }
}

}  // namespace

NvmlFacts read_nvml(const std::string& library) {
  NvmlFacts facts;
  const auto nvml = load_nvml(library);
  if (!nvml) {
    facts.trouble = fmt::format("{} cannot be loaded", library);
    return facts;
  }
  facts.library_found = true;
  if (const Code code = nvml->init(); code != kSuccess) {
    facts.trouble = words_of(code);
    return facts;
  }
  read_gpus(*nvml, facts);
  nvml->shutdown();
  return facts;
}

}  // namespace ddp::check
