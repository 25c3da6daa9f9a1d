// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/error.h"

namespace ddp::train {

namespace fs = std::filesystem;

ckpt::OwnerTag this_owner() {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job != nullptr && *job == '\0') job = nullptr;  // a script emptied it: not a job
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  return ckpt::OwnerTag::of_this_process(
      job != nullptr ? job : "local",
      restarts != nullptr ? static_cast<unsigned>(std::strtoul(restarts, nullptr, 10)) : 0);
}

std::string why_not_writable(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    try {
      ckpt::make_durable_directory(directory);
    } catch (const ckpt::IoError& e) {
      return fmt::format("cannot create the checkpoint directory {}: {}", directory.string(),
                         std::generic_category().message(e.code()));
    }
  }
  const auto probe = directory / fmt::format(".probe-{}", getpid());
  unlink(probe.c_str());  // left by a process with the same id that died, e.g. in a container
  const int fd = open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fmt::format("cannot write to the checkpoint directory {}: {}", directory.string(),
                       std::strerror(errno));
  }
  close(fd);
  unlink(probe.c_str());
  return {};
}

}  // namespace ddp::train
