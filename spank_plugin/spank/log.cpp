// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/log.h"

#include "base/text.h"
#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

namespace {

// A message may quote a user's environment and also appears in the daemon's log, so it must stay on
// one line and must not look like another message.
template <typename Log>
void log_safely(Log log, const std::string& text) noexcept {
  constexpr std::size_t kMaxLength = 1000;
  try {
    log(sanitize_beginning(text, kMaxLength).c_str());
  } catch (...) {  // out of memory
    log("out of memory for a message");
  }
}

}  // namespace

void log_line(const std::string& text) noexcept {
  log_safely([](const char* line) { slurm_spank_log("ddp: %s", line); }, text);
}

void log_error(const std::string& text) noexcept {
  log_safely([](const char* line) { slurm_error("ddp: %s", line); }, text);
}

}  // namespace ddp::spank
