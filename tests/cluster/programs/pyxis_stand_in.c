// A stand-in for the container plugin pyxis, which changes only the environment and the view of the
// files in each task, as pyxis does. The variables of the "image" overwrite the user's, and
// enroot's hook for PyTorch images sets its own rendezvous. The task no longer sees the machine's
// /etc and /sys, or the program named by the argument in plugstack.conf: scontrol, which images do
// not have.
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <sys/mount.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis_stand_in, 1)

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  static const char* const kImage[][2] = {{"NCCL_VERSION", "2.18"}, {"OMP_NUM_THREADS", "7"},
                                          {"RANK", "99"},           {"MASTER_ADDR", "image"},
                                          {"MASTER_PORT", "1"}};
  for (unsigned i = 0; i < sizeof kImage / sizeof kImage[0]; ++i)
    spank_setenv(spank, kImage[i][0], kImage[i][1], 1);
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) != 0) return -1;
  if (mount("none", "/etc", "tmpfs", 0, 0) != 0) return -1;
  for (int i = 0; i < count; ++i)
    if (mount("/dev/null", arguments[i], 0, MS_BIND, 0) != 0) return -1;
  return mount("none", "/sys", "tmpfs", 0, 0) == 0 ? 0 : -1;
}
