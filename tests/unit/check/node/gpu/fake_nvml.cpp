// SPDX-License-Identifier: Apache-2.0
// A fake of NVIDIA's management library for machines without a GPU, which the test loads by its
// path. FAKE_NVML selects the state of the second of its two GPUs, by "key=value" words. With
// "hang=1" it never returns, and with "init=N" it fails with NVML's error N. The library is built a
// second time as that of an old driver, which lacks some functions.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/unit/check/said.h"

namespace {

constexpr int kNotSupported = 3;

long said(const std::string& key, long otherwise) {
  return said_in("FAKE_NVML", key, otherwise);
}

long number_of(const void* device) {
  return reinterpret_cast<std::intptr_t>(device);
}

// The error that the scenario selects for this query; for the second GPU only.
int error_of(const void* device, const std::string& question) {
  return reinterpret_cast<std::intptr_t>(device) == 2 ? static_cast<int>(said(question, 0)) : 0;
}

long of(const void* device, const std::string& key, long otherwise) {
  return reinterpret_cast<std::intptr_t>(device) == 2 ? said(key, otherwise) : otherwise;
}

// By device, since nvmlInit: with "passing=1" a fault is gone at the second reading.
std::array<int, 3>& throttle_readings() {
  static std::array<int, 3> readings{};
  return readings;
}

}  // namespace

// Names, types and error codes match those of NVML.
extern "C" {

int nvmlInit_v2() {
  while (said("hang", 0) != 0) pause();
  throttle_readings() = {};
  return static_cast<int>(said("init", 0));
}
int nvmlShutdown() {
  return 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::strncpy(version, "999.1 (fake)", length);
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(said("gpus", 2));
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::intptr_t>(index + 1));
  return error_of(*device, "lost");
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::intptr_t>(address[6] - '0'));
  return 0;
}
// With "sxm=1", all GPUs are on one board; with "model=7", the second one is of another model.
int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  const char* other = of(device, "model", 0) != 0 ? "Fake GPU 7" : "Fake GPU";
  std::strncpy(name, said("sxm", 0) != 0 ? "Fake GPU-SXM9-80GB" : other, length);
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, unsigned char* info) {
  const std::string bus = "0000:0" + std::to_string(number_of(device)) + ":00.0";
  std::memset(info, 0x7f, 68);
  std::memcpy(info + 36, bus.c_str(), bus.size() + 1);
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int since, unsigned long long* count) {
  const char* key = since == 0 ? "ecc" : "ecc_ever";
  *count = type == 1 ? static_cast<unsigned long long>(of(device, key, 0)) : 77;
  return error_of(device, "ecc_error");
}
int nvmlDeviceGetPersistenceMode(void* device, int* on) {
  *on = static_cast<int>(of(device, "persistence", 1));
  return 0;
}
#ifndef FAKE_NVML_OF_AN_OLD_DRIVER
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* after_reset) {
  *now = *after_reset = static_cast<unsigned>(of(device, "mig", 0));
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return 0;
}
// "mig_devices=3" are the number of MIG devices, with gaps between their indexes.
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** mig_device) {
  constexpr int kNotFound = 6;
  *mig_device = device;
  if (index % 2 == 1 || index / 2 >= of(device, "mig_devices", 0)) return kNotFound;
  return error_of(device, "mig_error");
}
// 40 bytes per value: field, scope, timestamp, latency, type, code, value.
int nvmlDeviceGetFieldValues(void* device, int count, unsigned char* values) {
  for (; count > 0; --count, values += 40) {
    unsigned field = 0;
    std::memcpy(&field, values, sizeof field);
    const int code = field == 230 ? error_of(device, "recovery_error") : kNotSupported;
    const auto value = static_cast<std::uint64_t>(of(device, "recovery", 0));
    std::memcpy(values + 28, &code, sizeof code);
    std::memcpy(values + 32, &value, sizeof value);
  }
  return 0;
}
#endif
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  const auto number = static_cast<std::size_t>(reinterpret_cast<std::intptr_t>(device));
  const bool gone =
      of(device, "passing", 0) != 0 && throttle_readings().at(number < 3 ? number : 0)++ > 0;
  *reasons = gone ? 0 : static_cast<unsigned long long>(of(device, "throttle", 1));
  return error_of(device, "throttle_error");
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* mhz) {
  *mhz = type == 1 ? static_cast<unsigned>(of(device, "clock", 300)) : 0;
  return error_of(device, "clock_error");
}
int nvmlDeviceGetMaxClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1980 : 0;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* percent) {
  percent[0] = static_cast<unsigned>(of(device, "load", 0));
  percent[1] = 0;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* generation) {
  *generation = static_cast<unsigned>(of(device, "generation", 1));
  return error_of(device, "pcie_error");
}
int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 5;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* width) {
  *width = static_cast<unsigned>(of(device, "width", 16));
  return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* width) {
  *width = 16;
  return 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void*, int*) {
  return kNotSupported;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = 3;  // corrected: not a fault
  *pending = static_cast<unsigned>(of(device, "pending", 0));
  *failed = static_cast<unsigned>(of(device, "failed", 0));
  return 0;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) {
  if (link >= 4) return 2;  // NVML_ERROR_INVALID_ARGUMENT
  *active = link < static_cast<unsigned>(of(device, "links", 4)) ? 1 : 0;
  return 0;
}
// With "switch=1", all links lead to a switch.
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int* type) {
  *type = said("switch", 0) != 0 ? 2 : 0;
  return 0;
}
// "replays=N", "recoveries=N" and "crc=N" are errors of the second GPU's link 1; "new_links=1" is a
// generation of NVLink that does not count them.
int nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned link, int counter,
                                    unsigned long long* errors) {
  if (said("new_links", 0) != 0) return kNotSupported;
  const std::array<const char*, 3> keys{"replays", "recoveries", "crc"};
  const bool counted = link == 1 && counter < 3;
  *errors = counted ? static_cast<unsigned long long>(
                          of(device, keys.at(static_cast<std::size_t>(counter)), 0))
                    : 0;
  return 0;
}
// With "sockets=1", the upper half of the GPUs is below another CPU.
int nvmlDeviceGetTopologyCommonAncestor(void* first, void* second, int* level) {
  const auto half = said("gpus", 2) / 2;
  const bool across = (number_of(first) <= half) != (number_of(second) <= half);
  *level = said("sockets", 0) != 0 && across ? 50 : 30;
  return said("no_topology", 0) != 0 ? kNotSupported : 0;
}
// "apart=12" are the numbers of two GPUs without access to each other, "alone=3" is that of a GPU
// without access to any, and "unlinked=3" that of a GPU that has access, but not by NVLink. With
// "sockets=1" there is no access between the CPUs, and with "acs=1" none at all.
int nvmlDeviceGetP2PStatus(void* first, void* second, int capability, int* status) {
  const long a = number_of(first);
  const long b = number_of(second);
  const auto concerns = [a, b](const char* key) { return said(key, 0) == a || said(key, 0) == b; };
  int level = 0;
  nvmlDeviceGetTopologyCommonAncestor(first, second, &level);
  const bool cut = said("apart", 0) == 10 * a + b || concerns("alone") || said("acs", 0) != 0 ||
                   level == 50 || (capability == 2 && concerns("unlinked"));
  *status = cut ? 3 : 0;
  return static_cast<int>(said("peer_error", 0));
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  memory[0] = 80ULL << 30U;
  memory[2] = static_cast<unsigned long long>(of(device, "used_mib", 600)) << 20U;
  memory[1] = memory[0] - memory[2];
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, unsigned* processes) {
  const long pid = of(device, "pid", 0);
  *count = pid > 0 ? 1 : 0;
  if (pid > 0) processes[0] = static_cast<unsigned>(pid);
  return 0;
}
}
