// SPDX-License-Identifier: Apache-2.0
// Access to a task's environment through SPANK.
#pragma once

#include <optional>
#include <string>

#include "spank_plugin/launch/step/environment.h"
#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

// Borrows the handle: use it within one callback.
class TaskEnvironment {
 public:
  explicit TaskEnvironment(spank_t spank) : spank_(spank) {}

  // Returns nullopt if the variable is not set or is longer than SLURM's limit of 128 KiB.
  std::optional<std::string> get(const std::string& name) const;

  // Both throw launch::LaunchError if SLURM refuses.
  void set(const std::string& name, const std::string& value) const;

  void remove(const std::string& name) const;

  launch::EnvLookup lookup() const;

 private:
  spank_t spank_;
};

}  // namespace ddp::spank
