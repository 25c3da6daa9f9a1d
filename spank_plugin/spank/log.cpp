#include "spank_plugin/spank/log.h"

#include "base/text.h"
#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

namespace {

// A message may quote what a user's environment says, and goes to the daemon's log, too: it must be
// one line of it, and not look like another.
template <typename Log>
void log_safely(Log log, const std::string& text) noexcept {
  constexpr std::size_t kMaxLength = 1000;
  try {
    log(sanitize_beginning(text, kMaxLength).c_str());
  } catch (...) {  // no memory
    log("no memory for a message");
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
