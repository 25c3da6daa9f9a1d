// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/text.h"
#include "ddp_runtime/check/node/gpu/gpu_check.h"

namespace ddp::check {
namespace {

// The bus addresses of the GPUs with this value of a reading.
std::string gpus_with(const NvmlFacts& facts, GpuReading GpuFacts::*reading, std::uint64_t value) {
  std::string list;
  for (const auto& gpu : facts.gpus) {
    if ((gpu.*reading).value == value) list += (list.empty() ? "" : ", ") + gpu.bus_address;
  }
  return list;
}

}  // namespace

std::vector<std::string> gpu_notes(const NvmlFacts& facts, const GpuExpectations& expected) {
  std::vector<std::string> notes;
  if (expected.without_driver > 0) {
    notes.push_back(counted(static_cast<std::size_t>(expected.without_driver), "NVIDIA GPU") +
                    " without NVIDIA's driver, which no program can use");
  }
  const int seen = static_cast<int>(facts.gpus.size());
  if (!expected.all_visible && seen > 0 && seen < expected.nvidia_in_kernel) {
    notes.push_back(
        fmt::format("the job's limits hide {} of the node's {} GPUs, which were not "
                    "checked",
                    expected.nvidia_in_kernel - seen, expected.nvidia_in_kernel));
  }
  if (expected.listed && !expected.mig_listed && *expected.listed < seen) {
    notes.push_back(
        fmt::format("CUDA_VISIBLE_DEVICES shows programs {} of {} GPUs; the driver was "
                    "asked about all of them",
                    *expected.listed, seen));
  }
  if (const auto list = gpus_with(facts, &GpuFacts::mig, 1); !list.empty()) {
    notes.push_back("MIG is enabled, which disables peer access: " + list);
  }
  if (const auto list = gpus_with(facts, &GpuFacts::persistence, 0); !list.empty()) {
    notes.push_back("persistence mode is off, so programs start slowly; use nvidia-persistenced: " +
                    list);
  }
  if (facts.gpus.empty()) return notes;
  for (const auto& purpose : facts.not_checked) {
    notes.push_back("not checked: " + purpose + " in this driver's library");
  }
  return notes;
}

}  // namespace ddp::check
