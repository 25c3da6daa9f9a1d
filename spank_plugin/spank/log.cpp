#include "spank_plugin/spank/log.h"

#include "spank_plugin/spank/slurm_spank.h"

namespace ddp::spank {

void log_line(const std::string& text) noexcept {
  slurm_spank_log("ddp: %s", text.c_str());
}

void log_error(const std::string& text) noexcept {
  slurm_error("ddp: %s", text.c_str());
}

}  // namespace ddp::spank
