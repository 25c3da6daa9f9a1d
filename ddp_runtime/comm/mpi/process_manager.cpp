// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/mpi/process_manager.h"

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

// Variables that only a process manager sets. PMIx settings (PMIX_MCA_...) are not included,
// because users export them.
constexpr std::array kSetByProcessManagers{"PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_FD",
                                           "OMPI_COMM_WORLD_SIZE"};

int tasks_of_step(const char* text) {
  int tasks = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), tasks);
  return tasks;
}

}  // namespace

std::optional<std::string> missing_process_manager(const Environment& environment,
                                                   bool speaks_pmi1) {
  const int tasks = tasks_of_step(environment("SLURM_STEP_NUM_TASKS"));
  if (speaks_pmi1 || tasks < 2 || environment("SLURM_PROCID") == nullptr) return std::nullopt;
  if (std::any_of(kSetByProcessManagers.begin(), kSetByProcessManagers.end(),
                  [&](const char* name) { return environment(name) != nullptr; })) {
    return std::nullopt;
  }
  return fmt::format(
      "srun started {} tasks without the PMIx server through which MPI connects them; add "
      "--mpi=pmix to srun (srun --mpi=list shows the types that this SLURM supports)",
      tasks);
}

bool mpi_speaks_pmi1() {
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
  return false;  // Open MPI 5 no longer has the component
#elif defined(OPEN_MPI)
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init), &library) == 0) return true;
  std::error_code error;
  const auto directory = std::filesystem::path(library.dli_fname).parent_path() / "openmpi";
  // A library with built-in components does not list them, so MPI_Init has to find out.
  if (!std::filesystem::is_directory(directory, error)) return true;
  // Components are in openmpi/ or, on Debian, in openmpi/lib/openmpi3/.
  for (auto entry = std::filesystem::recursive_directory_iterator(
           directory, std::filesystem::directory_options::skip_permission_denied, error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path().filename() == "mca_pmix_s1.so") return true;
  }
  return false;
#else
  return true;
#endif
}

}  // namespace ddp::comm
