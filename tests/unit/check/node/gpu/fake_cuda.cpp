// SPDX-License-Identifier: Apache-2.0
// A fake of NVIDIA's CUDA driver for machines without a GPU, which the test loads by its path. GPU
// memory is process memory, and all work is done at once. FAKE_CUDA selects faults by "key=value"
// words, where N is the number of a GPU, counted from 1: "gpus=N", "init=E" (the error of cuInit),
// "lost=N" (the GPU cannot be used), "failing=N" with "error=E" (copies to it fail), "hang=N"
// (copies to it never end), "crash=N", "corrupt_to=N" (copies to it change a byte),
// "corrupt_from=N" (copies from it, from the second on), "skip_from=N" and "skip_to=N" (such copies
// do nothing), "corrupt=12" (copies from GPU 1 to GPU 2),
// "skip=12" (such copies do nothing), "direct=0" (no access between GPUs), "busy=1" (streams never
// complete).
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/check/said.h"

namespace {

thread_local long current = 0;  // number of the GPU of the current context

long said(const std::string& key, long otherwise) {
  return said_in("FAKE_CUDA", key, otherwise);
}

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);
}

// Until the library is unloaded. Callers may be threads.
void* allocate(std::size_t bytes) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<char[]>> memories;
  const std::lock_guard lock(mutex);
  memories.push_back(std::make_unique<char[]>(bytes));
  return memories.back().get();
}

void damage(void* data, std::size_t bytes) {
  static_cast<char*>(data)[bytes / 2] ^= 0x10;
}

}  // namespace

// Names, types and error codes match those of the driver.
extern "C" {

int cuGetErrorString(int, const char** words) {
  *words = "fake trouble";
  return 0;
}
int cuInit(unsigned) {
  return static_cast<int>(said("init", 0));
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(said("gpus", 2));
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return said("gpus", 2) > index ? 0 : 101;
}
int cuDeviceGetPCIBusId(char* address, int length, int device) {
  std::strncpy(address, ("0000:0" + std::to_string(device + 1) + ":00.0").c_str(),
               static_cast<std::size_t>(length));
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = pointer(static_cast<std::uint64_t>(device) + 1);
  return said("lost", 0) == device + 1 ? 46 : 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current = static_cast<long>(reinterpret_cast<std::uint64_t>(context));
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  *stream = pointer(static_cast<std::uint64_t>(current));
  return 0;
}
int cuStreamQuery(void*) {
  return said("busy", 0) != 0 ? 600 : 0;
}
int cuMemAlloc_v2(std::uint64_t* memory, std::size_t bytes) {
  *memory = reinterpret_cast<std::uint64_t>(allocate(bytes));
  return 0;
}
int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = allocate(bytes);
  return 0;
}
int cuMemsetD8Async(std::uint64_t memory, unsigned char value, std::size_t bytes, void*) {
  std::memset(pointer(memory), value, bytes);
  return 0;
}
int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
  std::memcpy(pointer(to), from, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
  std::memcpy(to, pointer(from), bytes);
  return 0;
}
int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void*) {
  while (said("hang", 0) == current) pause();
  if (said("crash", 0) == current) std::abort();
  if (said("failing", 0) == current) return static_cast<int>(said("error", 0));
  if (said("skip_to", 0) == current) return 0;
  std::memcpy(pointer(to), from, bytes);
  if (said("corrupt_to", 0) == current) damage(pointer(to), bytes);
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void*) {
  static int earlier = 0;
  const bool wrong = said("corrupt_from", 0) == current || said("skip_from", 0) == current;
  const bool now = wrong && earlier++ > 0;
  if (now && said("skip_from", 0) != 0) return 0;
  std::memcpy(to, pointer(from), bytes);
  if (now) damage(to, bytes);
  return 0;
}
int cuMemcpyPeerAsync(std::uint64_t to, void* to_context, std::uint64_t from, void* from_context,
                      std::size_t bytes, void*) {
  const long pair = 10 * static_cast<long>(reinterpret_cast<std::uint64_t>(from_context)) +
                    static_cast<long>(reinterpret_cast<std::uint64_t>(to_context));
  if (said("skip", 0) == pair) return 0;
  std::memcpy(pointer(to), pointer(from), bytes);
  if (said("corrupt", 0) == pair) damage(pointer(to), bytes);
  return 0;
}
int cuDeviceCanAccessPeer(int* possible, int, int) {
  *possible = static_cast<int>(said("direct", 1));
  return 0;
}
int cuCtxEnablePeerAccess(void*, unsigned) {
  return 0;
}
}
