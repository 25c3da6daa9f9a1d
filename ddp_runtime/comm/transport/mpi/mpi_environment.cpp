// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/mpi/mpi_environment.h"

#include <mpi.h>

#include <cstdlib>

#include "base/errors.h"

namespace ddp::comm {

MpiEnvironment::MpiEnvironment() {
  int started = 0;
  MPI_Initialized(&started);
  int provided = MPI_THREAD_SINGLE;
  if (started != 0) {
    MPI_Query_thread(&provided);
  } else {
    // Open MPI 5 otherwise ends all ranks without a word when one is lost.
    setenv("OMPI_MCA_mpi_ft_enable", "1", /*overwrite=*/0);
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    finalize_ = true;
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    throw RuntimeError(
        "MPI does not support calls from several threads; initialize it with MPI_THREAD_MULTIPLE, "
        "or use an MPI library built with thread support");
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

MpiEnvironment::~MpiEnvironment() {
  if (finalize_) MPI_Finalize();
}

void MpiEnvironment::end_job(int exit_code) noexcept {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // MPI_Abort is not declared [[noreturn]]
}

bool MpiEnvironment::launched_by_mpi() noexcept {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    if (std::getenv(variable) != nullptr) return true;
  }
  return false;
}

}  // namespace ddp::comm
