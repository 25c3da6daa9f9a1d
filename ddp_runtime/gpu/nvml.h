// SPDX-License-Identifier: Apache-2.0
// The functions of NVIDIA's management library (NVML) that the check calls, as a table that is
// filled at run time. Types and numbers match the library's binary interface.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ddp_runtime/gpu/shared_library.h"

namespace ddp::nvml {

using Code = int;
using Device = void*;

inline constexpr Code kSuccess = 0;
inline constexpr Code kInvalidArgument = 2;  // also returned for a link that this model lacks
inline constexpr Code kNotSupported = 3;
inline constexpr Code kNotFound = 6;  // also returned for a MIG device that does not exist
inline constexpr Code kInsufficientSize = 7;
inline constexpr Code kGpuIsLost = 15;
inline constexpr Code kResetRequired = 16;
// Of this file, not of the library.
inline constexpr Code kNoSuchFunction = -1;

inline constexpr int kCorrected = 0;
inline constexpr int kUncorrected = 1;
inline constexpr int kSinceDriverLoad = 0;
inline constexpr int kEver = 1;
inline constexpr int kSmClock = 1;
inline constexpr int kLinkReplays = 0;
inline constexpr int kLinkRecoveries = 1;
inline constexpr int kLinkFlitErrors = 2;
inline constexpr int kLinkDataErrors = 3;
inline constexpr int kPeerRead = 0;
inline constexpr int kPeerNvLink = 2;
inline constexpr int kSwitch = 2;  // at the other end of an NVLink
inline constexpr unsigned kRecoveryActionField = 230;

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
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  int type;
  Code code;
  unsigned value, rest_of_value;  // a union of 8 bytes
};

std::string words_of(Code code);

// Finds functions, and notes those that the library does not have.
class Lookup {
 public:
  explicit Lookup(const std::string& library) : library_(library) {}
  // Returns the first of the functions that exists, or nullptr. `purpose` says what cannot be
  // checked without it, such as "memory errors"; empty for a function whose absence is an error.
  gpu::Symbol find(const std::string& purpose, std::initializer_list<const char*> names);
  // "memory errors (no nvmlDeviceGetTotalEccErrors)"
  const std::vector<std::string>& missing() const noexcept { return missing_; }

 private:
  gpu::SharedLibrary library_;
  std::vector<std::string> missing_;
};

template <class... Arguments>
class Function {
 public:
  Function(Lookup& lookup, const char* purpose, std::initializer_list<const char*> names)
      : pointer_(lookup.find(purpose, names)) {}
  Code operator()(Arguments... arguments) const {
    return pointer_ == nullptr ? kNoSuchFunction : pointer_(arguments...);
  }

 private:
  using Pointer = Code (*)(Arguments...);
  Pointer pointer_;
};

struct Functions {
  // Throws RuntimeError if the library cannot be loaded.
  explicit Functions(const std::string& library) : from(library) {}

  Lookup from;  // first: the functions below are looked up in it
  Function<> init{from, "", {"nvmlInit_v2"}};
  Function<> shutdown{from, "", {"nvmlShutdown"}};
  Function<char*, unsigned> driver{from, "", {"nvmlSystemGetDriverVersion"}};
  Function<unsigned*> count{from, "", {"nvmlDeviceGetCount_v2"}};
  Function<unsigned, Device*> handle{from, "", {"nvmlDeviceGetHandleByIndex_v2"}};
  Function<const char*, Device*> handle_by_address{from, "", {"nvmlDeviceGetHandleByPciBusId_v2"}};
  Function<Device, char*, unsigned> name{from, "", {"nvmlDeviceGetName"}};
  Function<Device, PciInfo*> pci{from, "", {"nvmlDeviceGetPciInfo_v3"}};
  Function<Device, int, int, unsigned long long*> ecc{
      from, "memory errors", {"nvmlDeviceGetTotalEccErrors"}};
  Function<Device, int, FieldValue*> fields{
      from, "the recovery that the driver requests", {"nvmlDeviceGetFieldValues"}};
  Function<Device, unsigned long long*> throttle{
      from,
      "throttling",
      {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}};
  Function<Device, int, unsigned*> clock{from, "clocks", {"nvmlDeviceGetClockInfo"}};
  Function<Device, int, unsigned*> clock_max{from, "clocks", {"nvmlDeviceGetMaxClockInfo"}};
  Function<Device, Utilization*> utilization{from, "load", {"nvmlDeviceGetUtilizationRates"}};
  Function<Device, unsigned*> pcie_generation{
      from, "the PCIe link", {"nvmlDeviceGetCurrPcieLinkGeneration"}};
  Function<Device, unsigned*> pcie_generation_max{
      from, "the PCIe link", {"nvmlDeviceGetMaxPcieLinkGeneration"}};
  Function<Device, unsigned*> pcie_width{from, "the PCIe link", {"nvmlDeviceGetCurrPcieLinkWidth"}};
  Function<Device, unsigned*> pcie_width_max{
      from, "the PCIe link", {"nvmlDeviceGetMaxPcieLinkWidth"}};
  Function<Device, int*> pages{from, "retired pages", {"nvmlDeviceGetRetiredPagesPendingStatus"}};
  Function<Device, unsigned*, unsigned*, unsigned*, unsigned*> rows{
      from, "remapped rows", {"nvmlDeviceGetRemappedRows"}};
  Function<Device, unsigned, int*> link{from, "NVLinks", {"nvmlDeviceGetNvLinkState"}};
  Function<Device, unsigned, int*> link_end{
      from, "other ends of NVLinks", {"nvmlDeviceGetNvLinkRemoteDeviceType"}};
  Function<Device, unsigned, int, unsigned long long*> link_errors{
      from, "errors of NVLinks", {"nvmlDeviceGetNvLinkErrorCounter"}};
  Function<Device, Device, int*> distance{
      from, "access between GPUs", {"nvmlDeviceGetTopologyCommonAncestor"}};
  Function<Device, Device, int, int*> peer{from, "access between GPUs", {"nvmlDeviceGetP2PStatus"}};
  Function<Device, unsigned*, unsigned*> mig{from, "MIG", {"nvmlDeviceGetMigMode"}};
  Function<Device, unsigned*> mig_devices_max{from, "MIG", {"nvmlDeviceGetMaxMigDeviceCount"}};
  Function<Device, unsigned, Device*> mig_device{
      from, "MIG", {"nvmlDeviceGetMigDeviceHandleByIndex"}};
  Function<Device, unsigned*> persistence{
      from, "persistence mode", {"nvmlDeviceGetPersistenceMode"}};
  Function<Device, Memory*> memory{from, "memory in use", {"nvmlDeviceGetMemoryInfo"}};
  Function<Device, unsigned*, Process*> processes{
      from, "processes", {"nvmlDeviceGetComputeRunningProcesses_v3"}};
};

}  // namespace ddp::nvml
