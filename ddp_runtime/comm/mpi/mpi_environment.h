// MPI of this process: started once, ended once.
#pragma once

namespace ddp::comm {

class MpiEnvironment {
 public:
  // Starts MPI, unless the program has done so itself, with threads allowed to call it at once:
  // each group has a communication thread. Throws RuntimeError if MPI cannot give that.
  MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
  // Ends MPI if the constructor started it and abandon() was not called.
  ~MpiEnvironment();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // After a failure MPI_Finalize would wait for ranks that are gone.
  void abandon() noexcept { finalize_ = false; }
  // Ends every process of the job, the stopped ones too. Does not return.
  [[noreturn]] static void end_job(int exit_code) noexcept;

  // Whether this process was started by something that speaks MPI to it (mpirun, srun --mpi=pmix).
  static bool launched_by_mpi() noexcept;

 private:
  bool finalize_ = false;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace ddp::comm
