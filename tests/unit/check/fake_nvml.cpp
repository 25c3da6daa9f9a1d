// SPDX-License-Identifier: Apache-2.0
// A fake of NVIDIA's management library for machines without a GPU, which the test loads by its
// path. FAKE_NVML selects the state of the second of its two GPUs, by "key=value" words. With
// "hang=1" it never returns, and with "init=N" it fails with NVML's error N.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kNotSupported = 3;

long said(const std::string& key, long otherwise) {
  const char* words = std::getenv("FAKE_NVML");
  const std::string text = std::string(" ") + (words == nullptr ? "" : words);
  const auto at = text.find(" " + key + "=");
  return at == text.npos ? otherwise : std::atol(text.c_str() + at + key.size() + 2);
}

// The error that the scenario selects for this query; for the second GPU only.
int error_of(const void* device, const std::string& question) {
  return reinterpret_cast<std::intptr_t>(device) == 2 ? static_cast<int>(said(question, 0)) : 0;
}

long of(const void* device, const std::string& key, long otherwise) {
  return reinterpret_cast<std::intptr_t>(device) == 2 ? said(key, otherwise) : otherwise;
}

}  // namespace

// Names, types and error codes match those of NVML.
extern "C" {

int nvmlInit_v2() {
  while (said("hang", 0) != 0) pause();
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
int nvmlDeviceGetName(void*, char* name, unsigned length) {
  std::strncpy(name, "Fake GPU", length);
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, unsigned char* info) {
  const std::string bus =
      reinterpret_cast<std::intptr_t>(device) == 1 ? "0000:01:00.0" : "0000:02:00.0";
  std::memset(info, 0x7f, 68);
  std::memcpy(info + 36, bus.c_str(), bus.size() + 1);
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int, unsigned long long* count) {
  *count = type == 1 ? static_cast<unsigned long long>(of(device, "ecc", 0)) : 77;
  return error_of(device, "ecc_error");
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = static_cast<unsigned long long>(of(device, "throttle", 1));
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
