// SPDX-License-Identifier: Apache-2.0
#include "bench/process_memory.h"

#include <fstream>
#include <limits>
#include <string>

#include "base/errors.h"

namespace ddp::bench {

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

void reset_peak_memory() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5\n";
  file.flush();
  if (!file) throw RuntimeError("cannot reset the memory peak in /proc/self/clear_refs");
}

}  // namespace ddp::bench
