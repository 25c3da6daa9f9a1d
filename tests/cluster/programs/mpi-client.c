// An MPI program that also reads RANK, as programs do that use MPI for data and NCCL for tensors:
// the two worlds must number the same processes the same way.
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
