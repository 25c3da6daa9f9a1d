// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/mpi/process_manager.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace ddp::comm {
namespace {

// Variables that only a process manager for Open MPI sets. PMIx settings (PMIX_MCA_...) are not
// included, because users export them.
constexpr std::array kSetByProcessManagers{"PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE"};

int tasks_of_step(const char* text) {
  int tasks = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), tasks);
  return tasks;
}

bool are_equal(const char* one, const char* other) {
  return one != nullptr && other != nullptr && std::string_view(one) == other;
}

// Other launchers that speak PMI, such as Flux and Hydra, may run inside a task of a SLURM step.
// Their ranks are not those of the step.
bool has_pmi2_of_srun(const Environment& environment) {
  return environment("PMI_FD") != nullptr && environment("FLUX_JOB_ID") == nullptr &&
         are_equal(environment("PMI_RANK"), environment("SLURM_PROCID")) &&
         are_equal(environment("PMI_SIZE"), environment("SLURM_STEP_NUM_TASKS"));
}

}  // namespace

std::optional<std::string> missing_process_manager(const Environment& environment,
                                                   const PmiSupport& support) {
  const int tasks = tasks_of_step(environment("SLURM_STEP_NUM_TASKS"));
  if (support.pmi1 || tasks < 2 || environment("SLURM_PROCID") == nullptr) return std::nullopt;
  if (std::any_of(kSetByProcessManagers.begin(), kSetByProcessManagers.end(),
                  [&](const char* name) { return environment(name) != nullptr; })) {
    return std::nullopt;
  }
  const bool has_pmi = environment("PMI_RANK") != nullptr || environment("PMI_FD") != nullptr;
  if (has_pmi && (support.pmi2 || !has_pmi2_of_srun(environment))) return std::nullopt;
  return fmt::format(
      "srun started {} tasks {} the PMIx server through which MPI connects them; add --mpi=pmix to "
      "srun, or where srun --mpi=list does not show it, --ddp, which connects them over TCP",
      tasks,
      has_pmi ? "with PMI-2, which this MPI library does not support, instead of" : "without");
}

PmiSupport pmi_support_of_mpi() {
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
  return {};  // Open MPI 5 no longer has the components
#elif defined(OPEN_MPI)
  constexpr PmiSupport kUnknown{true, true};
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init), &library) == 0) return kUnknown;
  std::error_code error;
  const auto directory = std::filesystem::path(library.dli_fname).parent_path() / "openmpi";
  // A library with built-in components does not list them, so MPI_Init has to find out.
  if (!std::filesystem::is_directory(directory, error)) return kUnknown;
  PmiSupport found;
  // Components are in openmpi/ or, on Debian, in openmpi/lib/openmpi3/.
  for (auto entry = std::filesystem::recursive_directory_iterator(
           directory, std::filesystem::directory_options::skip_permission_denied, error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path().filename() == "mca_pmix_s1.so") found.pmi1 = true;
    if (entry->path().filename() == "mca_pmix_s2.so") found.pmi2 = true;
  }
  return found;
#else
  return {true, true};
#endif
}

}  // namespace ddp::comm
