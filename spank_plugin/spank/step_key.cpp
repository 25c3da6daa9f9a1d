// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/step_key.h"

#include <sys/random.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "spank_plugin/launch/step/error.h"

namespace ddp::spank {
namespace {

// The name starts with SLURM, because otherwise it would not pass `srun --export=NONE`.
constexpr const char* kStepKey = "SLURM_DDP_STEP_KEY";
constexpr std::size_t kStepKeyBytes = 32;

}  // namespace

void forget_outer_step_key() noexcept {
  unsetenv(kStepKey);
}

void draw_step_key() {
  if (std::getenv(kStepKey) != nullptr) return;
  std::array<std::uint8_t, kStepKeyBytes> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw launch::LaunchError("the kernel does not provide random numbers for the key of the step");
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  if (setenv(kStepKey, text.c_str(), 1) != 0) {
    throw launch::LaunchError(std::string("cannot set ") + kStepKey);
  }
}

void name_step_of_key(const TaskEnvironment& environment, const std::string& step) {
  const auto key = environment.get(kStepKey);
  if (key && key->find(':') == std::string::npos) environment.set(kStepKey, step + ":" + *key);
}

std::string step_key_digits(const TaskEnvironment& environment) {
  const std::string key = environment.get(kStepKey).value_or("");
  return key.size() == 2 * kStepKeyBytes ? key : "";
}

}  // namespace ddp::spank
