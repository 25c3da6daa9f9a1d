# SPDX-License-Identifier: Apache-2.0
# The local cluster of all other cluster tests: its properties, and its removal without a trace.

bats_require_minimum_version 1.5.0
load common

setup_file() { cluster_up 2 --mpi-default none; } # as `cluster up 2`

teardown_file() { cluster_down; }

setup() { cd "$work"; }

on_each_node() { srun -N2 --ntasks-per-node=1 bash -c "$1"; }

require_own_networks() { [ "$cluster_mode" = netns ] || skip "plain mode: the nodes share the host's network"; }

# Prints all traces that a cluster could leave: processes, namespaces, links, mounts, files.
traces() {
  ip netns list 2>/dev/null | grep '^ddp-' || true
  # With its own name: clusters of other process namespaces may be here too.
  ip -o link show dev "$(source "$project_root/tests/local_cluster/lib/settings.bash" && echo "$HOST_LINK")" 2>/dev/null || true
  grep -F ' /run/slurm-ddp-cluster' /proc/self/mountinfo || true
  ls -d /run/slurm-ddp-cluster* /etc/netns/ddp-* 2>/dev/null || true
  local dir
  for dir in /proc/[0-9]*; do
    [ "$dir/ns/pid" -ef /proc/self/ns/pid ] || continue # a cluster of others, as one by scripts/on_debian
    { tr '\0' ' ' <"$dir/cmdline"; } 2>/dev/null | grep -F '/run/slurm-ddp-cluster/' || true
  done
}

own_step_daemons() {
  local link
  for link in /proc/[0-9]*/cwd; do
    [[ $(readlink "$link" 2>/dev/null) == "$state"/* ]] || continue
    [[ $(readlink "${link%cwd}exe") == */slurmstepd* ]] && basename "${link%/cwd}"
  done
  true
}

@test "each node has its own host name, address, interfaces, /tmp and /dev/shm" {
  require_own_networks
  [ "$(on_each_node hostname | sort | tr '\n' ' ')" = "node1 node2 " ]
  [ "$(on_each_node 'hostname -I' | sort -u | wc -l)" -eq 2 ]
  [ "$(on_each_node 'ls /sys/class/net' | sort | uniq -c | tr -s ' ' | tr '\n' ' ')" = " 2 eth0  2 lo " ]
  on_each_node 'touch /tmp/mine-$(hostname) /dev/shm/mine-$(hostname)'
  [ "$(on_each_node 'ls /tmp /dev/shm | grep -c mine-' | tr '\n' ' ')" = "2 2 " ]
  [ -z "$(ls /tmp/mine-* /dev/shm/mine-* 2>/dev/null)" ]
  on_each_node 'getent hosts node1 node2 | wc -l | grep -qx 2'
  ip netns list | grep -q 'node1' && ip netns list | grep -q 'node2'
}

@test "/dev/shm is limited" {
  require_own_networks
  run srun -w node1 -n1 dd if=/dev/zero of=/dev/shm/big bs=1M count=2000
  [ "$status" -ne 0 ]
  [[ $output == *"No space left"* ]]
  srun -w node1 -n1 rm /dev/shm/big
}

@test "an MPI program spans two nodes" {
  need_pmix
  command -v mpicc >/dev/null || skip "no MPI compiler on this machine"
  cat >sum.c <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("sum %d\n", sum);
  return MPI_Finalize();
}
C
  mpicc -o sum sum.c
  [ "$(srun --mpi=pmix -N2 -n4 ./sum)" = "sum 6" ]
  run srun -N2 -n4 ./sum # SLURM's own default is none
  [[ $output != *"sum 6"* ]]
  "$cluster" up 2 --mpi-default pmix 2>&1 </dev/null
  [ "$(srun -N2 -n4 ./sum)" = "sum 6" ]
  "$cluster" up 2 2>&1 </dev/null
}

@test "a batch script runs on the first node, in its network" {
  sbatch -W -N2 -o out --wrap 'hostname; hostname -I; srun -N2 hostname | sort'
  if [ "$cluster_mode" = netns ]; then
    [ "$(sed -n 1p out)" = node1 ]
    [ "$(sed -n '3,4p' out | tr '\n' ' ')" = "node1 node2 " ]
  fi
  [ "$(wc -l <out)" -eq 4 ]
}

@test "arrays, time limits, signals" {
  sbatch -W -o 'out.%a' --array=1-3 --wrap 'echo $SLURM_ARRAY_TASK_ID'
  [ "$(cat out.1 out.2 out.3 | tr '\n' ' ')" = "1 2 3 " ]
  cat >patient.sh <<'JOB'
#!/bin/bash
#SBATCH -n1 -o patient.out
trap 'echo told; exit 0' USR2
echo ready
for i in {1..100}; do sleep 0.1; done
JOB
  local job
  job=$(sbatch --parsable patient.sh)
  wait_until 60 grep -q ready patient.out
  scancel --signal=USR2 --batch "$job"
  wait_until 60 grep -q told patient.out
  grep -q '^KillWait *= 5 sec' <(scontrol show config)
}

# bats test_tags=full
@test "a requeued job runs again" {
  cat >again.sh <<'JOB'
#!/bin/bash
#SBATCH -n1 -o again.out --open-mode=append
echo "run ${SLURM_RESTART_COUNT:-0}"
[ -n "$SLURM_RESTART_COUNT" ] || { scontrol requeue "$SLURM_JOB_ID"; sleep 60; }
JOB
  sbatch again.sh
  wait_until 60 grep -q 'run 1' again.out
}

@test "exec runs inside a node" {
  [ "$("$cluster" exec node2 -- bash -c 'echo $((6 * 7))')" = 42 ]
  [ "$cluster_mode" = plain ] || [ "$("$cluster" exec node2 -- hostname)" = node2 ]
  run "$cluster" exec node2 -- bash -c 'exit 9'
  [ "$status" -eq 9 ]
  run "$cluster" exec node9 -- true
  [ "$status" -eq 1 ]
  [[ $output == *"no node 'node9'"* ]]
}

@test "a second up does nothing, and status shows the cluster" {
  local before after
  before=$(cat "$state/slurmctld.pid")
  run "$cluster" up 2
  [ "$status" -eq 0 ]
  [[ $output == *"2 nodes are up already"* ]]
  after=$(cat "$state/slurmctld.pid")
  [ "$before" = "$after" ]
  run "$cluster" status
  [ "$status" -eq 0 ]
  [[ $output == *"nodes:  2"*"healthy"* ]]
}

@test "a node whose daemon died is unhealthy, and up replaces the cluster" {
  kill -9 "$(cat "$state/nodes/node2/slurmd.pid")"
  scontrol update nodename=node2 state=down reason=test
  run "$cluster" status
  [ "$status" -eq 1 ]
  [[ $output == *unhealthy* ]]
  "$cluster" up 2 2>&1 </dev/null
  "$cluster" status
  srun -N2 true
}

# bats test_tags=full
@test "a predecessor that lost its files, its controller and a namespace is replaced" {
  kill -9 "$(cat "$state/slurmctld.pid")"
  rm -f "$state"/*.conf "$state/settings" "$state/slurmctld.pid"
  [ "$cluster_mode" = plain ] || ip netns delete ddp-node2
  "$cluster" up 2 2>&1 </dev/null
  srun -N2 true
}

@test "up with a different number of nodes or CPUs, or with other options, replaces the cluster" {
  "$cluster" up 3 --cpus-per-node 2 2>&1 </dev/null
  [ "$(sinfo -h -N | wc -l)" -eq 3 ]
  [ "$(sinfo -h -N -o %c | sort -u)" = 2 ]
  mkdir extra
  printf 'GresTypes=gpu\nNodeName=DEFAULT Gres=gpu:2\n' >extra/slurm.conf
  printf 'Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n' >extra/gres.conf # any two devices
  "$cluster" up 2 --slurm-conf-extra "$PWD/extra" 2>&1 </dev/null
  [ "$(sinfo -h -N -o %G | sort -u)" = "gpu:2" ]
  srun -N2 --gpus-per-node=2 bash -c '[ "$CUDA_VISIBLE_DEVICES" = 0,1 ]'
  "$cluster" up 2 2>&1 </dev/null
  [ "$(sinfo -h -N -o %G | sort -u)" = "(null)" ]
}

@test "down leaves no trace, even with a running job, and does not touch other daemons" {
  # By its name, this process looks like a daemon of an installed SLURM.
  cp "$(command -v sleep)" slurmd
  ./slurmd 60 3>&- &
  local other=$!
  srun -N2 sleep 100 >/dev/null 2>&1 3>&- &
  wait_until 60 bash -c '[ -n "$(squeue -h -t R)" ]'
  "$cluster" down 2>&1 </dev/null
  [ -z "$(traces)" ]
  kill -0 "$other"
  kill "$other"
  run "$cluster" status
  [ "$status" -eq 3 ]
  run "$cluster" env
  [ "$status" -eq 3 ]
  "$cluster" down
  "$cluster" up 2 2>&1 </dev/null
}

@test "a project in /tmp is visible on the nodes" {
  require_own_networks
  local project
  project=$(mktemp -d /tmp/slurm-ddp-project.XXXXXX)
  chmod 755 "$project"
  mkdir "$project/tests"
  cp -r "$project_root/tests/local_cluster" "$project/tests/"
  printf '#!/bin/sh\nhostname >>%q/said\n' "$project" >"$project/program"
  chmod 755 "$project/program"
  "$cluster" down 2>&1 </dev/null
  SLURM_DDP_BUILD=$build_dir "$project/tests/local_cluster/cluster" up 2 2>&1 </dev/null
  (cd "$project" && srun -N2 --ntasks-per-node=1 ./program)
  "$project/tests/local_cluster/cluster" down 2>&1 </dev/null
  [ "$(sort "$project/said" | tr '\n' ' ')" = "node1 node2 " ]
  rm -r "$project"
  "$cluster" up 2 2>&1 </dev/null
}

# bats test_tags=full
@test "plain mode: several slurmd on one host" {
  SLURM_DDP_CLUSTER_MODE=plain run "$cluster" up 2 </dev/null
  [ "$status" -eq 0 ]
  [[ $output == *"plain mode"* ]]
  [[ $("$cluster" status) == *"mode:   plain"* ]]
  [ "$(srun -N2 printenv SLURMD_NODENAME | sort | tr '\n' ' ')" = "node1 node2 " ]
  if [ -f "$build_dir/lib/slurm/ddp.so" ]; then
    [ "$(srun --ddp -N2 -n4 rendezvous | grep -c 'sum 6')" -eq 4 ]
  fi
  # A job without step daemons and a queued client, without a controller to terminate them, can be
  # recognized only by their environment.
  srun -N2 --exclusive sleep 100 >/dev/null 2>&1 3>&- &
  wait_until 60 bash -c '[ -n "$(squeue -h -t R)" ]'
  srun -N2 --exclusive sleep 100 >/dev/null 2>&1 3>&- &
  local waiting=$!
  wait_until 60 bash -c '[ -n "$(squeue -h -t PD)" ]'
  own_step_daemons | xargs kill -9 "$(cat "$state/slurmctld.pid")"
  "$cluster" down 2>&1 </dev/null
  [ -z "$(traces)" ]
  [ -z "$(pgrep -fx '[^ ]*sleep 100')" ]
  run ! kill -0 "$waiting"
  "$cluster" up 2 2>&1 </dev/null
}

# bats test_tags=full
@test "a cluster in a container, and that of its machine, do not disturb each other" {
  "$cluster" up 1 2>&1 </dev/null
  run -0 unshare --mount --pid --uts --ipc --fork --kill-child --mount-proc bash -c '
    mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir /run/netns
    "$0" up 1 2>&1 < /dev/null && "$0" status && "$0" down' "$cluster"
  [[ $output == *healthy* ]]
  [[ $("$cluster" status) == *healthy* ]]
}

@test "usage errors give one sentence and status 2" {
  local arguments
  for arguments in "" "up" "up 0" "up x" "up 9999" "up 2 --bogus 1" "up 2 --plugin" "up 2 --plugin /nope" \
    "up 2 --cpus-per-node 0" "up 2 --mpi-default a=b" "up 2 --slurm-conf-extra /nope" "exec node1" "sideways"; do
    # shellcheck disable=SC2086
    run "$cluster" $arguments
    [ "$status" -eq 2 ]
  done
  [[ $("$cluster" --help) == *"cluster up N"* ]]
}

@test "a machine without SLURM gets the packages to install, and status 75" {
  mkdir -p bin
  local program
  for program in bash readlink dirname awk grep cat cut env flock id; do
    ln -sf "$(command -v "$program")" bin/
  done
  PATH=$PWD/bin run "$cluster" up 2
  [ "$status" -eq 75 ]
  [[ $output == *"no slurmctld slurmd srun"*"apt-get install"*slurmctld* ]]
  [ "$(wc -l <<<"$output")" -eq 1 ]
  chmod 755 "$work"
  run setpriv --reuid nobody --regid nogroup --clear-groups bash "$cluster" up 2
  [ "$status" -eq 75 ]
  [[ $output == *"needs root"* ]]
}
