// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/node/machine_key.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace ddp::comm {

std::string machine_key() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat shm {};
  if (stat("/dev/shm", &shm) != 0) return fmt::format("{} {}", boot, getpid());
  return fmt::format("{} {}", boot, shm.st_dev);
}

}  // namespace ddp::comm
