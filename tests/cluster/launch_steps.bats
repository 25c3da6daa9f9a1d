# SPDX-License-Identifier: Apache-2.0
# `srun --ddp` in steps other than plain `srun -N2`: interactive, in jobs of several components,
# consecutive, nested. In each, MASTER_ADDR is the node of rank 0, and no setting of one step leaks
# into another.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  make_extra
  echo "LaunchParameters=use_interactive_step" >"$extra/slurm.conf"
  cluster_up 4 --slurm-conf-extra "$extra"
  unset MASTER_ADDR MASTER_PORT SLURM_DDP SLURM_NTASKS_PER_NODE
}

teardown_file() { cluster_down; }

setup() {
  cd "$work" || return
  rm -rf ./*
  empty_records
  unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT
}

teardown() { end_all_jobs; }

# at_terminal COMMAND: runs the command on a separate terminal, and types the standard input after
# the shell there has printed its prompt, because srun discards input typed before it took over the
# terminal.
at_terminal() {
  command -v script >/dev/null || skip "no script(1) on this machine"
  : >terminal
  { wait_until 60 prompted && cat; } |
    HOME=$work SHELL=/bin/bash timeout -k 1 90 script -qefc "$1" /dev/null >terminal
}

prompted() { grep -q '# $' terminal; } # root's prompt in a bash without startup files

@test "salloc --ddp with an interactive step: the shell is not a rank; its srun starts ranks" {
  at_terminal "salloc -Q --ddp -N2 -n4 --ntasks-per-node=2" <<'TYPED'
echo "step=$SLURM_STEP_ID rank=[$RANK$MASTER_ADDR$SLURM_DDP_SET]" >shell
srun record-task </dev/null
exit
TYPED
  grep -xE 'step=(4294967290|-6) rank=\[\]' shell # as 26.05 writes it
  check-records "$RECORDS" 4
}

@test "srun --pty --ddp starts a rank on a terminal" {
  at_terminal "srun --ddp --pty -N1 -n1 bash" <<'TYPED'
record-task </dev/null
exit
TYPED
  check-records "$RECORDS" 1
}

@test "uneven cyclic and plane steps, and a note about them" {
  srun --ddp -N3 -n5 -m cyclic record-task 2>err
  check-records "$RECORDS" 5
  grep -q 'note: the nodes run different numbers of tasks' err
  rm "$RECORDS"/*
  srun --ddp -N2 -n5 -m plane=3 record-task
  check-records "$RECORDS" 5
}

@test "a hostfile that lists one node once and another twice" {
  printf 'node4\nnode2\nnode4\n' >hosts
  SLURM_HOSTFILE=hosts srun --ddp -n3 record-task
  check-records "$RECORDS" 3
  [ "$(recorded 0 SLURMD_NODENAME)" = node4 ]
  [ "$(recorded 0 NODE_RANK)" = 1 ] # SLURM's number of the node; its list is sorted
}

@test "-r with several nodes, and -m cyclic" {
  salloc -Q -N4 --ntasks-per-node=2 srun --ddp -r2 -N2 -n4 -m cyclic record-task
  check-records "$RECORDS" 4
  [ "$(recorded 0 SLURMD_NODENAME)" = node3 ]
}

@test "srun --multi-prog" {
  echo '0-3 record-task' >programs.conf
  srun --ddp -N2 -n4 --multi-prog programs.conf
  check-records "$RECORDS" 4
}

@test "a batch job of two components: a step over both, and a step in the second alone" {
  cat >job.sh <<'JOB'
#!/bin/bash
#SBATCH --ddp -N1 -n2 -w node4 -o job.out
#SBATCH hetjob
#SBATCH -N2 -n2 -w node[1-2]
env | grep -E '^(RANK|MASTER_ADDR)=' && exit 9
timeout -k 1 20 srun --het-group=0,1 record-task
mv "$RECORDS" both && mkdir "$RECORDS"
timeout -k 1 20 srun --het-group=1 --mpi=none record-task
JOB
  sbatch -W job.sh
  check-records both 4
  check-records "$RECORDS" 2
  RECORDS=both
  [ "$(recorded 0 SLURMD_NODENAME)" = node4 ]
}

@test "consecutive steps have different ports, and the second has no variables of the first" {
  cat >job.sh <<'JOB'
#!/bin/bash
#SBATCH -N2 -n4 -o job.out
srun --ddp --resv-ports=0 record-task
mv "$RECORDS" first && mkdir "$RECORDS"
srun env >between
srun --ddp --resv-ports=0 -N1 -n2 record-task
JOB
  run_job job.sh
  check-records first 4
  check-records "$RECORDS" 2
  run ! grep -E '^(RANK|WORLD_SIZE|MASTER_ADDR|JAX_.*|OMP_NUM_THREADS|SLURM_DDP_(SET|SETTINGS|HEAD|COMPONENTS))=' between
  [ "$(cat first/* "$RECORDS"/* | grep '^MASTER_PORT=' | sort -u | wc -l)" -eq 2 ]
}

@test "a second step on the CPUs of a running step" {
  salloc -Q -N2 --ntasks-per-node=2 bash -c '
    srun --ddp -N2 -n4 bash -c "record-task; until [ -e go ]; do sleep 0.1; done" &
    until [ "$(ls "$RECORDS" | wc -l)" = 4 ]; do sleep 0.1; done
    mv "$RECORDS" first && mkdir "$RECORDS"
    srun --ddp --overlap -N1 -n2 -r1 record-task
    touch go; wait'
  check-records first 4
  check-records "$RECORDS" 2
  [ "$(cat first/* "$RECORDS"/* | grep '^MASTER_PORT=' | sort -u | wc -l)" -eq 2 ]
}

# bats test_tags=full
@test "the port of a requeued array element differs from its previous port and from its neighbor's" {
  cat >job.sh <<'JOB'
#!/bin/bash
#SBATCH --ddp -N1 -n1 --requeue --array=1-2 -o job.%a.out
export RECORDS=$RECORDS/$SLURM_ARRAY_TASK_ID.${SLURM_RESTART_COUNT:-0}
mkdir -p "$RECORDS"
srun --resv-ports=0 record-task
[ -n "$SLURM_RESTART_COUNT" ] || { scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; sleep 60; }
JOB
  sbatch -Q job.sh
  local run
  for run in 1.0 2.0 1.1 2.1; do wait_until 60 compgen -G "$RECORDS/$run/task.*"; done
  [ "$(cat "$RECORDS"/*/* | grep '^MASTER_PORT=' | sort -u | wc -l)" -eq 4 ]
}

@test "SLURM_NTASKS_PER_NODE has the step's value, as Lightning requires, and does not affect a nested srun" {
  salloc -Q -N2 -n4 bash -c 'srun --ddp -N2 -n2 record-task'
  [ "$(all_recorded SLURM_NTASKS_PER_NODE)" = "1 1" ]
  rm "$RECORDS"/*
  salloc -Q -N2 --ntasks-per-node=2 bash -c 'srun --ddp -N2 -n2 record-task'
  [ "$(all_recorded SLURM_NTASKS_PER_NODE)" = "1 1" ] # not 2, the job's
  rm "$RECORDS"/*
  salloc -Q -N1 -n3 srun --ddp -n2 bash -c '[ $RANK = 1 ] || exit 0; srun --overlap -N1 -n1 env >inner 2>err'
  run ! grep -E "^SLURM_NTASKS_PER_NODE=" inner
  [ ! -s err ] # such as "can't honor --ntasks-per-node set to 2"
}

# with_hosts COMMAND: runs it while the nodes have the files hosts.node1 and hosts.node2 as /etc/hosts.
with_hosts() {
  local node rc=0
  for node in node1 node2; do "$cluster" exec $node -- mount --bind "$work/hosts.$node" /etc/hosts; done
  "$@" || rc=$?
  for node in node1 node2; do "$cluster" exec $node -- umount /etc/hosts; done
  return $rc
}

@test "nodes that resolve their own names to 127.0.1.1 are still distinguished" {
  [ "$cluster_mode" = netns ] || skip "needs a hosts file per node"
  local node
  for node in node1 node2; do
    { sed "/ $node\$/d" "$state/hosts"; echo "127.0.1.1 $node"; } >"hosts.$node"
  done
  with_hosts srun --ddp -N2 -n4 -w 'node[1-2]' bash -c 'record-task; exec rendezvous' >out 2>err
  [ "$(grep -c 'of 4: sum 6' out)" -eq 4 ]
  [ "$(all_recorded NODE_RANK)" = "0 0 1 1" ] || [ "$(all_recorded NODE_RANK)" = "0 0 0 1" ]
  [ "$(all_recorded MASTER_ADDR)" = "node1 node1 node1 node1" ]
  grep -q 'note: on its own host node1 resolves to a loopback address only' err
}

@test "a node where the leader's name leads to the node itself reaches rank 0 by SLURM's address" {
  [ "$cluster_mode" = netns ] || skip "needs a hosts file per node"
  cp "$state/hosts" hosts.node1
  local own address
  own=$(awk '$2 == "node2" { print $1 }' "$state/hosts")
  address=$(awk '$2 == "node1" { print $1 }' "$state/hosts")
  sed "s/.* node1\$/$own node1/" "$state/hosts" >hosts.node2
  with_hosts srun --ddp -N2 -n2 -w 'node[1-2]' bash -c 'record-task; exec rendezvous' >out 2>err
  [ "$(grep -c 'of 2: sum 1' out)" -eq 2 ]
  [ "$(all_recorded MASTER_ADDR)" = "$address node1" ]
  grep -q "note: node2: node1 resolves to $own, which is an address of this node" err
}
