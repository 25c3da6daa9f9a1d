// SPDX-License-Identifier: Apache-2.0
// MPI in this process: initialized once, finalized once.
#pragma once

namespace ddp::comm {

class MpiEnvironment {
 public:
  // Initializes MPI, unless the program has already done so. Requests support for concurrent calls
  // from several threads, because each group has a communication thread, and throws RuntimeError if
  // MPI does not provide it.
  MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
  // Finalizes MPI if the constructor initialized it and abandon() was not called.
  ~MpiEnvironment();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // Skips MPI_Finalize, which would wait for ranks that are gone after a failure.
  void abandon() noexcept { finalize_ = false; }
  // Terminates every process of the job, including stopped ones. Does not return.
  [[noreturn]] static void end_job(int exit_code) noexcept;

  // Whether this process was started by an MPI launcher (mpirun, srun --mpi=pmix).
  static bool launched_by_mpi() noexcept;

 private:
  bool finalize_ = false;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace ddp::comm
