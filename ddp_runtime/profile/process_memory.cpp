// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/process_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <string>

#include "base/errors.h"

namespace ddp::profile {
namespace {

std::atomic<std::int64_t> largest_before_reset{0};

// A restart of the measurement restarts this one, too.
std::int64_t largest_since_reset() noexcept {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

ProcessMemory process_memory() {
  ProcessMemory memory;
  int found = 0;
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    std::int64_t kib = 0;
    const auto is = [&](const char* wanted, std::int64_t& value) {
      if (name != wanted || !(status >> kib)) return;
      value = kib * 1024;
      ++found;
    };
    is("RssAnon:", memory.anonymous);
    is("RssShmem:", memory.shared);
    is("RssFile:", memory.file);
    is("VmHWM:", memory.peak);
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  if (found != 4)
    throw RuntimeError("/proc/self/status does not contain RssAnon, RssShmem and VmHWM");
  return memory;
}

std::int64_t share_of_shared_memory() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string name; rollup >> name;) {
    std::int64_t kib = 0;
    if (name == "Pss_Shmem:" && rollup >> kib) return kib * 1024;
    rollup.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  throw RuntimeError("/proc/self/smaps_rollup does not contain Pss_Shmem");
}

void reset_peak_memory() {
  const auto largest = largest_memory();
  std::ofstream file("/proc/self/clear_refs");
  file << "5\n";
  file.flush();
  if (!file) throw RuntimeError("cannot reset the memory peak in /proc/self/clear_refs");
  largest_before_reset = largest;
}

std::int64_t largest_memory() noexcept {
  return std::max(largest_before_reset.load(), largest_since_reset());
}

}  // namespace ddp::profile
