// Checks whether a PMIx fence waits for the other nodes. Rank 0 deliberately enters the fence late
// and then creates a file; each rank reports whether the file existed at the end of its own fence.
#include <pmix.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  pmix_proc_t self;
  if (PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS) return 1;
  if (self.rank == 0) {
    sleep(1);
    FILE* began = fopen(argv[1], "w");
    if (began == NULL || fclose(began) != 0) return 1;
  }
  if (PMIx_Fence(NULL, 0, NULL, 0) != PMIX_SUCCESS) return 1;
  int waited = access(argv[1], F_OK) == 0;
  printf("rank %u: the fence %s\n", (unsigned)self.rank, waited ? "waited" : "ended early");
  PMIx_Finalize(NULL, 0);
  return waited ? 0 : 1;
}
