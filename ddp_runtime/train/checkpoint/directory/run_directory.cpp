// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/directory/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/errors.h"
#include "base/secret/random_token.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/enclosure.h"

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

std::string why_misplaced(const fs::path& directory) {
  using Kind = ckpt::Enclosure::Kind;
  const auto place = ckpt::enclosure_of(directory);
  const auto here = "--checkpoint-dir " + directory.string();
  const auto resume_run =
      place.run.empty()
          ? std::string()
          : fmt::format("use --checkpoint-dir {} to resume its run, or ", place.run.string());
  switch (place.kind) {
    case Kind::none:
      return {};
    case Kind::checkpoint:
      return fmt::format("{} is itself a checkpoint: {}{}--resume {} with another --checkpoint-dir",
                         here, resume_run, resume_run.empty() ? "use " : "", directory.string());
    case Kind::within:
      return fmt::format("{} is inside the checkpoint {}: {}choose a directory elsewhere", here,
                         place.checkpoint.string(), resume_run);
    case Kind::among:
      return fmt::format("{} is among the checkpoints of {}: {}choose a directory elsewhere", here,
                         place.run.string(), resume_run);
    case Kind::kept_name:
      break;
  }
  return fmt::format(
      "{} holds no checkpoint, and has the name of one, or of those that --keep-best keeps: to "
      "resume a run, name the directory that holds its step-NUMBER; to begin one, choose another "
      "name",
      here);
}

std::string why_misplaced_report(const fs::path& directory) {
  using Kind = ckpt::Enclosure::Kind;
  const auto place = ckpt::enclosure_of(directory);
  std::error_code ignored;
  bool kept = place.kind != Kind::none;
  if (place.kind == Kind::among) {
    const auto whole = fs::weakly_canonical(fs::absolute(directory, ignored), ignored);
    const auto within = whole.lexically_relative(place.run);
    kept = !within.empty() && ckpt::has_kept_name(*within.begin());
  }
  if (!kept) return {};
  const bool in_checkpoint = place.kind == Kind::checkpoint || place.kind == Kind::within;
  return fmt::format("--report-dir {} {}: choose a directory elsewhere", directory.string(),
                     in_checkpoint
                         ? fmt::format("is in the checkpoint {}, which its run may remove",
                                       place.checkpoint.string())
                         : "has the name of a checkpoint, which a run may remove");
}

std::string why_not_writable(const fs::path& directory, const char* what) {
  std::error_code error;
  if (const auto link = ckpt::dangling_link_text(directory); !link.empty()) {
    return fmt::format("cannot create the {} directory: {}", what, link);
  }
  if (!fs::is_directory(directory, error)) {
    try {
      ckpt::make_durable_directory(directory);
    } catch (const ckpt::IoError& e) {
      return fmt::format("cannot create the {} directory {}: {}", what, directory.string(),
                         std::generic_category().message(e.code()));
    }
  }
  const auto probe = directory / fmt::format(".probe-{}", getpid());
  unlink(probe.c_str());  // left by a process with the same id that died, e.g. in a container
  const int fd = open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fmt::format("cannot write to the {} directory {}: {}", what, directory.string(),
                       std::strerror(errno));
  }
  close(fd);
  unlink(probe.c_str());
  return {};
}

void require_seen_by_all(comm::Group& group, const fs::path& directory, const RankHosts& hosts) {
  std::error_code ignored;
  std::string name;
  if (group.rank() == 0) {
    name = fmt::format(".seen-by-all-ranks-{}", random_token());
    std::ofstream(directory / name).put('\n');
  }
  name = group.broadcast_text(name, 0);
  const bool sees = fs::exists(directory / name, ignored);
  const auto all = group.all_gather_text(sees ? "" : "no");
  if (group.rank() == 0) fs::remove(directory / name, ignored);
  const auto blind = std::ranges::find(all, "no");
  if (blind == all.end()) return;
  const auto rank = static_cast<std::size_t>(blind - all.begin());
  throw UsageError(
      fmt::format("rank {} on {} cannot see {}, which rank 0 uses on {}; with --shard every rank "
                  "writes part of each checkpoint, so put --checkpoint-dir on a file system that "
                  "all nodes share",
                  rank, hosts.of(rank), directory.string(), hosts.of(0)));
}

}  // namespace ddp::train
