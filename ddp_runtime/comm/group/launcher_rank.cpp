// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/launcher_rank.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace ddp::comm {
namespace {

// SLURM_PROCID comes behind those of MPI, because the ranks of an mpirun in a batch script inherit
// that of the script.
constexpr std::array kLaunchersRanks{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                     "SLURM_PROCID"};

}  // namespace

std::optional<int> integer_from_environment(const char* name) noexcept {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end != '\0') return std::nullopt;
  return value;
}

bool has_launcher() noexcept {
  return std::any_of(kLaunchersRanks.begin(), kLaunchersRanks.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

int rank_from_environment() noexcept {
  for (const char* name : kLaunchersRanks) {
    if (const auto rank = integer_from_environment(name)) return *rank;
  }
  return integer_from_environment("RANK").value_or(0);
}

}  // namespace ddp::comm
