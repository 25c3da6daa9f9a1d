# SPDX-License-Identifier: Apache-2.0
# `srun --ddp` on a real SLURM of four nodes: the variables of the tasks in many kinds of steps.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  cluster_up 4
  [[ -f $build_dir/lib/slurm/ddp.so ]] || { echo "no plugin in $build_dir" >&2; return 1; }
}

teardown_file() { cluster_down; }

setup() {
  cd "$work"
  empty_records
  programs=$project_root/tests/cluster/programs
}

# Checks that no test leaves a node out of service.
teardown() { end_all_jobs; }

in_job() { # OPTIONS COMMAND, each as one word: runs COMMAND in a job of `salloc OPTIONS`
  # shellcheck disable=SC2086
  salloc -Q $1 bash -c "$2"
}

# srun of SLURM 22.05 sometimes hangs after a step of several components with PMIx has ended,
# because it stops its two abort agents twice (pmixp_abort_agent_stop). This also happens without
# the plugin. The test checks only the variables of the tasks.
of_components() {
  local rc=0
  timeout -k 1 20 "$@" || rc=$?
  # 124, 137: terminated or killed by timeout
  ((rc == 0 || rc == 124 || rc == 137)) || { echo "$1 exited with $rc"; return 1; }
}

@test "two nodes: seven variables, consistent in every task" {
  srun --ddp -N2 -n4 record-task
  check-records "$RECORDS" 4
  [ "$(recorded 0 MASTER_ADDR)" = node1 ] || [ "$cluster_mode" = plain ]
}

@test "one line shows the settings and their reasons" {
  run --separate-stderr srun --ddp -N2 --ntasks-per-node=2 true
  [ "$status" -eq 0 ]
  [ -z "$output" ]
  [[ $(head -1 <<<"$stderr") == "ddp: 4 ranks on 2 nodes; MASTER_ADDR="*"MASTER_PORT="*"(reserved by SLURM for this step)"* ]]
  # In plain mode, a note correctly reports that 127.0.0.1 is a different host on each of several
  # nodes.
  [ "$cluster_mode" = plain ] || [ "$(wc -l <<<"$stderr")" -eq 1 ]
}

@test "the environment's ranks are overwritten, but its rendezvous is kept" {
  RANK=77 WORLD_SIZE=99 LOCAL_RANK=7 NODE_RANK=7 MASTER_PORT=29511 srun --ddp -N2 -n4 record-task 2>err
  check-records "$RECORDS" 4
  [ "$(recorded 3 MASTER_PORT)" = 29511 ]
  grep -q 'MASTER_PORT=29511 (kept: the user set it)' err
}

@test "a port given by the user is used, the command line's first, even if it is taken" {
  [ "$cluster_mode" = netns ] || skip "needs a separate network for each node"
  occupy 29511
  MASTER_PORT=29511 srun --ddp -N2 -n2 record-task
  MASTER_PORT=29512 srun --ddp=master_port=29511 -N2 -n2 record-task
  release
  [ "$(cat "$RECORDS"/* | grep -c '^MASTER_PORT=29511$')" -eq 4 ]
}

@test "the interface that reaches the leader is set, unless the user or the site chose one" {
  [ "$cluster_mode" = netns ] || skip "in plain mode all nodes are this host"
  srun --ddp -N2 -n2 bash -c 'echo "$GLOO_SOCKET_IFNAME"' >out
  [ "$(sort -u out)" = eth0 ]
  GLOO_SOCKET_IFNAME=mine srun --ddp -N2 -n2 bash -c 'echo "$GLOO_SOCKET_IFNAME"' >out
  [ "$(sort -u out)" = mine ]
  srun --ddp=fabric=off -N2 -n2 bash -c 'echo "[$GLOO_SOCKET_IFNAME]"' >out
  [ "$(sort -u out)" = "[]" ]
  use_plugin_arguments fabric=off
  srun --ddp -N2 -n2 bash -c 'echo "[$GLOO_SOCKET_IFNAME]"' >out
  use_plugin_arguments
  [ "$(sort -u out)" = "[]" ]
  run srun --ddp=fabric=no-such -N2 -n2 record-task
  [ "$status" -ne 0 ]
  [[ $output == *"no-such"*"efa"* ]]
  [ -z "$(ls "$RECORDS")" ]
}

@test "cyclic distribution, and a note about it" {
  srun --ddp -N2 -n4 -m cyclic record-task 2>err
  check-records "$RECORDS" 4
  grep -q 'note: the ranks are not numbered node by node (distribution cyclic)' err
}

@test "hostfile without PMIx" {
  printf 'node3\nnode1\nnode3\nnode1\n' >hosts
  in_job "-N4 -n16" "SLURM_HOSTFILE=hosts srun --mpi=none --ddp -n4 record-task"
  check-records "$RECORDS" 4
  [ "$(recorded 0 SLURMD_NODENAME)" = node3 ]
}

@test "arbitrary order given by -w" {
  need_pmix
  in_job "-N4 -n16" "srun --ddp -n4 -m arbitrary -w node4,node2,node4,node2 record-task"
  check-records "$RECORDS" 4
  [ "$(recorded 0 SLURMD_NODENAME)" = node4 ]
}

@test "arbitrary order without a hint is rejected, not guessed" {
  [ "$cluster_mode" = netns ] || skip "in plain mode the address is given"
  run in_job "-N2 -n8 -w node[1-2]" "srun --mpi=none --ddp -n2 -m arbitrary -w node2,node1 record-task"
  [ "$status" -ne 0 ]
  [[ $output == *"cannot tell which node runs rank 0"*"--ddp=master_addr=HOST"* ]]
  [ -z "$(ls "$RECORDS")" ]
}

@test "-w in the wrong order, -r, and a step smaller than its job" {
  srun --ddp -N2 -n2 -w node3,node1 record-task
  check-records "$RECORDS" 2
  rm "$RECORDS"/*
  in_job "-N2 -n4 --ntasks-per-node=2" "srun --ddp -r1 -N1 -n1 record-task"
  check-records "$RECORDS" 1
  rm "$RECORDS"/*
  in_job "-N2 -n4 --ntasks-per-node=2" "srun --ddp -N1 -n1 record-task"
  check-records "$RECORDS" 1
}

@test "a job of several components, of which the first is last in alphabetical order" {
  of_components srun --ddp -N1 -n2 -w node4 record-task : --ddp -N2 -n2 -w 'node[1-2]' record-task
  check-records "$RECORDS" 4
  [ "$(recorded 0 SLURMD_NODENAME)" = node4 ]
}

@test "a job of several components without PMIx" {
  of_components srun --mpi=none --ddp -N1 -n2 -w node4 record-task : --mpi=none --ddp -N2 -n2 -w 'node[1-2]' record-task
  check-records "$RECORDS" 4
}

@test "a step of several components in an ordinary job" {
  need_pmix
  of_components salloc -Q -N2 -n8 -w "node[1-2]" bash -c "srun --ddp --overlap -w node2 -N1 -n1 record-task : --overlap -w node1 -N1 -n2 record-task"
  check-records "$RECORDS" 3
  [ "$(recorded 0 SLURMD_NODENAME)" = node2 ]
}

@test "two steps at once have different ports" {
  in_job "-N2 -n4" "
    srun --ddp --overlap -N2 -n2 bash -c 'record-task; sleep 1' &
    srun --ddp --overlap -N2 -n2 bash -c 'record-task; sleep 1' &
    wait"
  [ "$(sed -n 's/^MASTER_PORT=//p' "$RECORDS"/* | sort -u | wc -l)" -eq 2 ]
}

@test "two steps at once have different ports without reserved ports" {
  in_job "-N2 -n4" "
    srun --ddp --resv-ports=0 --overlap -N2 -n2 bash -c 'record-task; sleep 1' &
    srun --ddp --resv-ports=0 --overlap -N2 -n2 bash -c 'record-task; sleep 1' &
    wait"
  local ports
  ports=$(sed -n 's/^MASTER_PORT=//p' "$RECORDS"/* | sort -u)
  [ "$(wc -l <<<"$ports")" -eq 2 ]
  (($(head -1 <<<"$ports") >= 61000)) # outside the ephemeral range
}

@test "#SBATCH --ddp reaches every srun; one of them may switch it off" {
  cat >job.sh <<'JOB'
#!/bin/bash
#SBATCH --ddp -N2 -n4 -o job.out
env | grep -E '^(RANK|MASTER_ADDR|WORLD_SIZE)=' && exit 9   # the script itself is not a rank
srun record-task || exit 8
srun --ddp=off bash -c '[ -z "$RANK" ]' || exit 7
srun --export=NONE -n1 /bin/bash -c '[ "$RANK" = 0 ]' || exit 6
JOB
  run_job job.sh
  check-records "$RECORDS" 4
}

@test "--export=NONE" {
  srun --export=NONE --ddp -N2 -n2 /usr/bin/env >out
  [ "$(grep -c '^MASTER_ADDR=' out)" -eq 2 ]
  [ "$(grep -c '^RANK=' out)" -eq 2 ]
}

@test "srun inside a task: a separate plan with --ddp, no plan without it" {
  in_job "-N2 --ntasks-per-node=2" "srun --ddp --overlap -N2 -n2 bash -c '
    [ \$RANK = 1 ] || exit 0
    srun --ddp --overlap -N1 -n2 -w node2 record-task 2>inner
    srun --overlap -N1 -n1 env | grep ^SLURM_DDP_SETTINGS= && exit 9
    true'"
  check-records "$RECORDS" 2
  grep -q 'reserved by SLURM for this step' inner
}

@test "an inner step without reserved ports does not use those of the outer step" {
  in_job "-N2 -n4" "srun --ddp --overlap -N1 -n1 bash -c '
    record-task
    srun --ddp --overlap --resv-ports=0 -N1 -n1 record-task'"
  [ "$(sed -n 's/^MASTER_PORT=//p' "$RECORDS"/* | sort -u | wc -l)" -eq 2 ]
}

@test "a wrong SPEC gives one sentence, and nothing is launched" {
  local spec
  for spec in bogus order=random master_port=0 master_port=99999 'master_addr=a b' color=red auto,off; do
    run srun --ddp="$spec" -N2 -n2 record-task
    [ "$status" -ne 0 ]
    [ "$(grep -c 'error: ddp: --ddp: ' <<<"$output")" -eq 1 ]
    run sbatch --ddp="$spec" --wrap true
    [ "$status" -ne 0 ]
    run salloc --ddp="$spec" true
    [ "$status" -ne 0 ]
  done
  [ -z "$(ls "$RECORDS")" ]
  [ -z "$(squeue -h)" ]
}

@test "a wrong SLURM_DDP: no program runs" {
  SLURM_DDP=bogus run srun -N2 -n2 record-task
  [ "$status" -ne 0 ]
  [[ $output == *"ddp: SLURM_DDP: unknown item 'bogus'"* ]]
  [ -z "$(ls "$RECORDS")" ]
}

@test "a wrong SLURM_DDP is reported when the job is submitted" {
  SLURM_DDP=bogus run sbatch -o /dev/null --wrap true
  [[ $output == *"ddp: SLURM_DDP: unknown item 'bogus'"* ]]
  SLURM_DDP=bogus run salloc -Q true
  [[ $output == *"ddp: SLURM_DDP: unknown item 'bogus'"* ]]
}

@test "sbatch inside a task: the script is not a rank of the submitting step" {
  srun --ddp -N1 -n1 sbatch -W -N1 -n1 -o job.out --wrap 'echo "set for $SLURM_DDP_SET"; srun --ddp record-task'
  check-records "$RECORDS" 1
  # The script inherits the marker of the outer step, as any program would.
  [[ $(grep '^set for' job.out) != *"$(sed -n 's/^SLURM_JOB_ID=//p' "$RECORDS"/*)."* ]]
}

@test "SLURM_DDP is a default that the command line overrides" {
  SLURM_DDP=auto srun -N2 -n2 record-task
  check-records "$RECORDS" 2
  SLURM_DDP=auto srun --ddp=off -n1 bash -c '[ -z "$RANK" ]'
  SLURM_DDP=master_port=29513 srun -n1 bash -c '[ -z "$RANK" ]'
  SLURM_DDP=master_port=29513 srun --ddp -n1 bash -c '[ $MASTER_PORT = 29513 ]'
}

@test "without --ddp, nothing is set and nothing is printed" {
  run srun -N2 -n2 env
  [ "$status" -eq 0 ]
  run -1 grep -E '^(RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|SLURM_DDP_(SET|SETTINGS|HEAD|COMPONENTS))=|ddp: ' <<<"$output"
}

@test "explain shows every variable with its source and rule, and runs nothing" {
  run --separate-stderr srun --ddp=explain -N2 -n4 record-task
  [ "$status" -eq 0 ]
  [ -z "$(ls "$RECORDS")" ]
  local name
  for name in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK MASTER_ADDR MASTER_PORT; do
    [ "$(grep -cE "^$name  +[^ ]+  +[^ ]+  +[^ ]+" <<<"$output")" -eq 1 ]
  done
  grep -qE '^MASTER_PORT +[0-9]+ +SLURM_STEP_RESV_PORTS +reserved by SLURM' <<<"$output"
  [ "$(grep -c '^rank [123] of 4 on node' <<<"$output")" -eq 3 ]
}

@test "ddp-launch makes the same plan without the plugin" {
  # Runs in a step of the plugin, after removing all variables that the plugin set.
  cat >compare.sh <<'EOF2'
variables() { env | grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|MASTER_ADDR|MASTER_PORT|JAX_[A-Z_]+|OMP_NUM_THREADS|(GLOO|NCCL|TP|UCX)_[A-Z_]+|SLURM_DDP_SET)=' | sort; }
variables >$RECORDS/plugin.$SLURM_PROCID
set_by_plugin=$(cut -d: -f2 <<<"$SLURM_DDP_SET" | sed "s/=[0-9a-f]*//g" | tr , ' ')
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK JAX_NUM_PROCESSES JAX_PROCESS_ID $set_by_plugin ${!SLURM_DDP_*}
export -f variables
ddp-launch bash -c variables >$RECORDS/ddp-launch.$SLURM_PROCID 2>$RECORDS/stderr.$SLURM_PROCID
diff $RECORDS/plugin.$SLURM_PROCID $RECORDS/ddp-launch.$SLURM_PROCID
EOF2
  srun --ddp -N2 -n5 bash compare.sh
  srun --ddp -N2 -n4 -m cyclic bash compare.sh
  srun --ddp -N2 -n2 --resv-ports=0 bash compare.sh
  ! has_pmix || in_job "-N4 -n16" "srun --ddp -n4 -m arbitrary -w node4,node2,node4,node2 bash compare.sh"
  printf 'node3\nnode1\n' >hosts
  in_job "-N4 -n16" "SLURM_HOSTFILE=hosts srun --mpi=none --ddp -n2 bash compare.sh"
  [ -s "$RECORDS/plugin.4" ]
  grep -q '^ddp: 2 ranks on 2 nodes' "$RECORDS/stderr.0"
}

@test "ddp-launch inside srun --ddp keeps the plugin's decisions" {
  srun --ddp -N2 -n2 bash -c '[ "$(ddp-launch printenv MASTER_PORT 2>/dev/null)" = $MASTER_PORT ]'
}

@test "ddp-launch in a job: a plan under srun, and a note without srun" {
  srun -N2 -n4 ddp-launch record-task
  check-records "$RECORDS" 4
  in_job "-N2 -n4" "ddp-launch true" 2>err
  grep -q 'not a task of a SLURM step' err
}

# bats test_tags=full
@test "mpirun in a ddp job: its daemons are not ranks" {
  [ "$cluster_mode" = netns ] || skip "in plain mode mpirun sees one host"
  command -v mpirun >/dev/null || skip "no mpirun on this machine"
  cat >job.sh <<'JOB'
#!/bin/bash
#SBATCH --ddp -N2 --ntasks-per-node=2 -o job.out
mpirun --allow-run-as-root bash -c 'echo "rank=$RANK here=$OMPI_COMM_WORLD_RANK"'
MASTER_ADDR=node1 mpirun --allow-run-as-root -x MASTER_ADDR ddp-launch bash -c 'echo "launched $RANK $WORLD_SIZE $MASTER_ADDR"'
mpirun --allow-run-as-root ddp-launch true || echo "status $?"
JOB
  sbatch -W job.sh || true
  cat job.out
  [ "$(grep -c '^rank= here=' job.out)" -eq 4 ]
  [ "$(grep -c '^launched [0-3] 4 node1' job.out)" -eq 4 ]
  grep -q 'does not report the host of rank 0' job.out
}

@test "ranks rendezvous at MASTER_ADDR:MASTER_PORT" {
  srun --ddp -N4 -n8 rendezvous >out
  [ "$(grep -c 'of 8: sum 28' out)" -eq 8 ]
  srun --ddp --resv-ports=0 -N2 -n4 -m cyclic rendezvous >out
  [ "$(grep -c 'of 4: sum 6' out)" -eq 4 ]
  srun -N2 -n4 ddp-launch rendezvous >out
  [ "$(grep -c 'of 4: sum 6' out)" -eq 4 ]
}

# Listens on PORT of node1 until release() is called, across any number of steps.
occupy() { # PORT
  rm -f occupier
  "$cluster" exec node1 -- python3 -c "
import socket, time
s = socket.create_server(('', $1)); print('listening', flush=True); time.sleep(590)" >occupier 2>&1 3>&- &
  occupier=$!
  wait_until 60 grep -q listening occupier
}

release() {
  kill "$occupier"
  wait "$occupier" || true
}

@test "a taken port immediately ends a step of several nodes, and the message names the holder" {
  [ "$cluster_mode" = netns ] || skip "needs a separate network for each node"
  use_plugin_arguments port_base=62000 port_count=1
  occupy 62000
  run srun --ddp --resv-ports=0 -N2 -n2 -w 'node[1-2]' bash -c '[ $RANK = 0 ] && touch started'
  release
  use_plugin_arguments
  [ "$status" -ne 0 ]
  [[ $output == *"port 62000 is taken on this host (user 0 listens on it)"*"MpiParams=ports="* ]]
  [ ! -e started ]
}

@test "a taken second port, which few programs use, gives a note" {
  [ "$cluster_mode" = netns ] || skip "needs a separate network for each node"
  use_plugin_arguments port_base=62000 port_count=2
  occupy 62000
  # 62000 is the second port of one of two consecutive steps, because their numbers differ by an odd
  # number.
  local both=0
  in_job "-N2 -n2 -w node[1-2]" "
    srun --ddp=master_port=29600 --resv-ports=0 record-task && srun --ddp=master_port=29600 --resv-ports=0 record-task" 2>err || both=$?
  release
  use_plugin_arguments
  [ "$both" -eq 0 ]
  [ "$(grep -c 'note: port 62000 is taken on this host (user 0 listens on it): if the program uses JAX' err)" -eq 1 ]
}

@test "TF_CONFIG on request, with a port that is taken: the task exits" {
  [ "$cluster_mode" = netns ] || skip "needs a separate network for each node"
  use_plugin_arguments port_base=62000 port_count=8
  occupy 62000
  # Four of the eight ports belong to the tasks, and the next step's begin one port higher.
  run in_job "-N1 -n4 -w node1" "
    for i in 1 2 3 4 5; do srun --ddp=tf_config,master_port=29600 --resv-ports=0 true || exit 1; done"
  release
  use_plugin_arguments
  [ "$status" -ne 0 ]
  [[ $output == *"port 62000 is taken on this host (user 0 listens on it)"*"leave out tf_config"* ]]
}

@test "a step of one node uses the next port if its own is taken" {
  [ "$cluster_mode" = netns ] || skip "needs a separate network for each node"
  use_plugin_arguments port_base=62000 port_count=2
  occupy 62000
  # One of two consecutive steps has the port 62000, because their numbers differ by an odd number.
  local both=0
  in_job "-N1 -n2 -w node1" "
    srun --ddp --resv-ports=0 record-task && srun --ddp --resv-ports=0 record-task" 2>err || both=$?
  release
  use_plugin_arguments
  [ "$both" -eq 0 ]
  [ "$(sed -n 's/^MASTER_PORT=//p' "$RECORDS"/* | sort | uniq -c | tr -s ' ')" = " 4 62001" ]
  grep -q 'MASTER_PORT=62001 (computed .*, the first that is free)' err
}

# Rewrites the plugin's line in plugstack.conf, which SLURM reads at every launch.
use_plugin_arguments() {
  local line=$state/plugstack.conf.d/zz-ddp.conf
  [[ -f $line.saved ]] || cp "$line" "$line.saved"
  { tr -d '\n' <"$line.saved"; echo " $*"; } >"$line"
}

@test "plugstack.conf may turn --ddp on for all steps; wrong arguments there are logged and left out" {
  use_plugin_arguments default=auto port_bsae=1
  srun -N2 -n2 record-task 2>err
  check-records "$RECORDS" 2
  [ "$(grep -c "argument 'port_bsae=1' is left out" err)" -eq 1 ]
  srun --ddp=off -n1 bash -c '[ -z "$RANK" ]'
  SLURM_MPI_TYPE=none salloc -Q -N2 -n4 -w "node[1-2]" bash -c "
    srun --overlap -w node1 -N1 -n1 true : --overlap -w node2 -N1 -n1 true" 2>err || { cat err && false; }
  [ "$(grep -c "argument 'port_bsae=1' is left out" err)" -eq 1 ] # once, not for each component
  use_plugin_arguments
  srun -n1 bash -c '[ -z "$RANK" ]'
}

@test "a step planned only because of the site runs unplanned if planning is impossible" {
  [ "$cluster_mode" = netns ] || skip "in plain mode the address is given"
  use_plugin_arguments default=auto
  run in_job "-N2 -n2 -w node[1-2]" "srun --mpi=none -n2 -m arbitrary -w node2,node1 bash -c '[ -z \"\$RANK\" ] && echo ran'"
  use_plugin_arguments
  [ "$status" -eq 0 ]
  [ "$(grep -c '^ran$' <<<"$output")" -eq 2 ]
  [[ $output == *"ddp: no variable is set, because cannot tell which node runs rank 0"* ]]
}

# Makes node1 and node2 resolve node1 only through a name server, which each of them runs itself.
use_name_server() { # [arguments of fake-dns]
  local namespace
  cp "$state/hosts" hosts.saved
  cp "$state/resolv.conf" resolv.saved
  # Change the file in place, because each node has it mounted over its own.
  grep -v ' node1$' hosts.saved >"$state/hosts"
  echo nameserver 127.0.0.77 >"$state/resolv.conf"
  mkfifo ends
  exec 9<>ends # the servers exit when their standard input ends; this descriptor keeps it open
  for namespace in $(ip netns list | awk '$1 ~ /node[12]$/ { print $1 }'); do
    nsenter --net="/run/netns/$namespace" fake-dns "$@" <ends >"listens.$namespace" 3>&- &
    name_servers+=($!)
    wait_until 60 test -s "listens.$namespace"
  done
}

restore_names() {
  cat hosts.saved >"$state/hosts"
  cat resolv.saved >"$state/resolv.conf"
  exec 9>&-
  kill "${name_servers[@]}"
  rm ends
}

# bats test_tags=full
@test "a name server that loses the first packet of every query: the ranks still connect" {
  [ "$cluster_mode" = netns ] || skip "in plain mode the address is given"
  use_name_server --lose "node1=$(awk '$2 == "node1" { print $1 }' "$state/hosts")"
  run srun --ddp -N2 -n2 -w 'node[1-2]' rendezvous
  restore_names
  [ "$status" -eq 0 ]
  [ "$(grep -c 'of 2: sum 1' <<<"$output")" -eq 2 ]
}

@test "an unknown leader name is replaced by SLURM's address, or reported without a timeout" {
  [ "$cluster_mode" = netns ] || skip "in plain mode the address is given"
  use_name_server
  run env PATH=/nowhere "$(command -v srun)" --ddp -N2 -n2 -w 'node[1-2]' record-task # finds no scontrol
  local multi=$status said=$output
  run srun --ddp -N1 -n2 -w node1 rendezvous
  local one=$status sums=$output
  run srun --ddp -N2 -n2 -w 'node[1-2]' rendezvous
  restore_names
  [ "$multi" -ne 0 ]
  [[ $said == *"node1"*"is unknown to the name service"*"--ddp=master_addr=ADDRESS"* ]]
  [ -z "$(ls "$RECORDS")" ]
  [ "$one" -eq 0 ] # one node: 127.0.0.1 is enough
  [ "$(grep -c 'sum 1' <<<"$sums")" -eq 2 ]
  [ "$status" -eq 0 ]
  [ "$(grep -c 'of 2: sum 1' <<<"$output")" -eq 2 ]
  [[ $output == *"MASTER_ADDR=$(awk '$2 == "node1" { print $1 }' "$state/hosts") (SLURM's address of node1,"* ]]
}

@test "an ordinary user can use --ddp" {
  local user=nobody
  chmod 777 "$RECORDS"
  # The build and its directories may be readable only by root.
  cp "$programs/record-task" "$work/" && chmod 755 "$work/record-task"
  setpriv --reuid "$user" --regid nogroup --clear-groups env HOME="$work" srun --ddp -N2 -n4 "$work/record-task"
  check-records "$RECORDS" 4
}

@test "a task that dies fails the step, and the plugin adds no error" {
  run srun --ddp -N2 -n2 bash -c 'kill -9 $$'
  [ "$status" -ne 0 ]
  run srun --ddp -N2 -n2 bash -c 'exit 7'
  [ "$status" -eq 7 ]
}
