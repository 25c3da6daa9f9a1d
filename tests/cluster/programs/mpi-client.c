// An MPI program that also reads RANK, like programs that use MPI for data and NCCL for tensors.
// MPI and RANK must number the processes in the same way.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = -1, size = -1, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const char* planned = getenv("RANK");
  int same = planned != NULL && atoi(planned) == rank;
  MPI_Allreduce(&same, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d of %d ranks agree with RANK\n", sum, size);
  MPI_Finalize();
  return sum == size ? 0 : 1;
}
