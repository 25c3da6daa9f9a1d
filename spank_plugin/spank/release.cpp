// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/release.h"

namespace ddp::spank {
namespace {

std::string item_text(spank_t spank, spank_item_t item) {
  const char* text = nullptr;
  if (spank_get_item(spank, item, &text) != ESPANK_SUCCESS || text == nullptr) return "";
  return text;
}

}  // namespace

std::string built_for_release() {
  const int minor = SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER);
  return std::to_string(SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER)) + (minor < 10 ? ".0" : ".") +
         std::to_string(minor);
}

std::string find_release_problem(spank_t spank) {
  const std::string major = item_text(spank, S_SLURM_VERSION_MAJOR);
  const std::string minor = item_text(spank, S_SLURM_VERSION_MINOR);
  if (major.empty() || minor.empty()) return "";
  std::string release = major;
  release.append(".").append(minor);
  if (release == built_for_release()) return "";
  return "ddp.so was built for SLURM " + built_for_release() + ", but this is SLURM " + release +
         ": build it again with the headers of this release, and install it on all machines";
}

}  // namespace ddp::spank
