#pragma once
// Who writes a checkpoint: the tag in the names of temporary directories, by which a restarted job
// tells its own leftovers from the work of others.

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::ckpt {

struct OwnerTag {
  std::string job;       // SLURM job id ("123", "123_4") or any word of [A-Za-z0-9_-], up to 64
  unsigned restart = 0;  // SLURM_RESTART_COUNT
  std::string host;      // of [A-Za-z0-9._-], up to 64
  pid_t pid = 0;

  bool operator==(const OwnerTag&) const = default;

  // This process on this host.
  static OwnerTag of_this_process(std::string job, unsigned restart);

  // "123.r0.node1.p4567". Throws Error if job or host hold other characters than those above.
  std::string text() const;

  // The inverse of text(); nothing for any other string.
  static std::optional<OwnerTag> parse(std::string_view text);
};

// Whether no process of that id does anything any more on this machine.
bool has_ended(pid_t pid);

// Says whether the writer with that tag can no longer be at work.
using OwnerIsDead = std::function<bool(const OwnerTag&)>;

// Dead are the earlier restarts of the same job (SLURM starts one only when the last has ended)
// and those processes of the same job on this host that no longer exist. Nobody else is.
OwnerIsDead dead_relatives_of(OwnerTag own);

}  // namespace ddp::ckpt
