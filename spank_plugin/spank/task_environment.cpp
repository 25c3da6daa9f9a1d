// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/task_environment.h"

#include "spank_plugin/launch/step/error.h"

namespace ddp::spank {
namespace {

constexpr std::size_t kFirstBuffer = 1024;
constexpr std::size_t kMaxBuffer = 262'144;  // twice SLURM's limit

}  // namespace

std::optional<std::string> TaskEnvironment::get(const std::string& name) const {
  std::string buffer;
  for (std::size_t size = kFirstBuffer; size <= kMaxBuffer; size *= 4) {
    buffer.resize(size);
    const spank_err_t result =
        spank_getenv(spank_, name.c_str(), buffer.data(), static_cast<int>(size));
    if (result == ESPANK_NOSPACE) continue;
    if (result != ESPANK_SUCCESS) return std::nullopt;
    buffer.resize(buffer.find('\0'));
    return buffer;
  }
  return std::nullopt;
}

void TaskEnvironment::set(const std::string& name, const std::string& value) const {
  const spank_err_t result = spank_setenv(spank_, name.c_str(), value.c_str(), 1);
  if (result != ESPANK_SUCCESS) {
    throw launch::LaunchError("SLURM does not set " + name +
                              " in the task: " + spank_strerror(result));
  }
}

void TaskEnvironment::remove(const std::string& name) const {
  const spank_err_t result = spank_unsetenv(spank_, name.c_str());
  if (result != ESPANK_SUCCESS && result != ESPANK_ENV_NOEXIST) {
    throw launch::LaunchError("SLURM does not remove " + name +
                              " from the task: " + spank_strerror(result));
  }
}

launch::EnvLookup TaskEnvironment::lookup() const {
  return [*this](const std::string& name) { return get(name); };
}

}  // namespace ddp::spank
