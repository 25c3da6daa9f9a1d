// SPDX-License-Identifier: Apache-2.0
// Identifies the writer of a checkpoint. The tag is part of the names of temporary directories, so
// that a restarted job can distinguish its own leftovers from another job's files.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::ckpt {

struct OwnerTag {
  std::string job;       // SLURM job id ("123", "123_4") or any word of [A-Za-z0-9_-], up to 64
  unsigned restart = 0;  // SLURM_RESTART_COUNT
  std::string host;      // up to 64 of [A-Za-z0-9._-]
  pid_t pid = 0;

  bool operator==(const OwnerTag&) const = default;

  // Returns the tag of this process on this host.
  static OwnerTag of_this_process(std::string job, unsigned restart);

  // Returns "123.r0.node1.p4567". Throws Error if job or host contain characters other than those
  // above.
  std::string text() const;

  // Parses the result of text(); returns nullopt for any other string.
  static std::optional<OwnerTag> parse(std::string_view text);
};

// True if no process with that id is running on this machine.
bool has_ended(pid_t pid);

// Returns true if the writer with that tag certainly no longer runs.
using OwnerIsDead = std::function<bool(const OwnerTag&)>;

// Considers dead: earlier restarts of the same job (SLURM starts one only when the previous one has
// ended), and processes of the same job on this host that no longer exist. Considers all others
// alive.
OwnerIsDead dead_relatives_of(OwnerTag own);

}  // namespace ddp::ckpt
